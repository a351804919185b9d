"""Pollux: its rounds, batches that are tuned and its policies as a dialect, and the recipes."""
