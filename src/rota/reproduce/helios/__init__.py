"""Helios: its queues, nodes and quotas as a dialect, and the recipe."""
