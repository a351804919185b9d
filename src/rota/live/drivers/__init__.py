"""Real clusters behind the same port as the simulator; they never import each other."""
