"""FGD: its placement study as a dialect, and the recipe."""
