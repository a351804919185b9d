"""Slurm: multifactor priority, backfill, preemption and limits."""
