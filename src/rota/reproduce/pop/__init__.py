"""POP: recipes of its paper."""
