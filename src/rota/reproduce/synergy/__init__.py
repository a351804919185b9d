"""Synergy: its servers, leases and rates as a dialect, and the recipe."""
