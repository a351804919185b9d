"""Lucid: its simulator's assumptions as a dialect, and the recipe."""
