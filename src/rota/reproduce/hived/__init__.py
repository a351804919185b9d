"""HiveD: recipes of its paper."""
