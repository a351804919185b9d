"""Sia's simulator (Jayaram Subramanya et al., SOSP 2023): siasosp23/artifacts, sia-simulator."""
