"""PAI: Alibaba's simulator as a dialect, and the recipe."""
