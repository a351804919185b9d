"""Gavel: its rounds, leases and pairs as a dialect, and the recipes."""
