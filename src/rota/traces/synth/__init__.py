"""Synthetic workloads: generators, and their fit to a trace."""
