"""Recipes: what a paper or its simulator published, made again, ours beside theirs.

`base` says what a recipe is, `checks` has the ways to compare, `carry` runs one and gives the
verdict. Every other module is one recipe (registered in the group `rota.recipes`).
"""
