"""Jobs that share GPUs: Gandiva's examples, and all such policies side by side."""
