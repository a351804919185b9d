"""Slurm's accounting: `sacct` as text and JSON, node lists, outages."""
