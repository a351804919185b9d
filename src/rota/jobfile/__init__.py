"""Job files: our YAML and what others call a job (Slurm scripts, OpenPAI, Kubernetes, Blox)."""
