"""What backfilling needs: users' estimates, and what is free when (easy, conservative, slurm)."""
