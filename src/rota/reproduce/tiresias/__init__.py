"""Tiresias: its simulator's assumptions as a dialect, its queues, and the recipe."""
