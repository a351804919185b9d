"""Optimisation on arrays: linear and integer programmes, shares of time, matching, searches.

Nothing here knows jobs or policies, and nothing builds models from expressions: a problem is a few
arrays. HiGHS (`rota[solve]`) is imported when the first programme is solved, so that what needs no
solver runs without it.
"""
