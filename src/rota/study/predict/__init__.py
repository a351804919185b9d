"""How predictable the run times of a log are: predictors, their errors, and what they are worth.

`history` reads a log, `predictors` foresee its jobs one after the other from those that had ended,
`errors` measures how wrong they are and what no predictor could avoid, `worth` simulates what a
scheduler gains by them; `predict` does all of it.
"""
