"""Blox: its rounds as a dialect, and the recipes of its artifact and figures."""
