"""Rota: deep-learning jobs, simulated exactly or run for real, with the same policy object."""

__version__ = "0.1.0"
