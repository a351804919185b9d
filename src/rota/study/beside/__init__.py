"""Beside a Slurm: when its jobs start and why they wait, read-only."""
