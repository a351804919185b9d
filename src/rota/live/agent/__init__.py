"""What runs on a node: the agent, and the shim of each run."""
