"""The best of many trials without running all of them to the end: successive halving.

`spec` reads the description (that of a sweep, with a section `tune`), `space` draws the trials,
`run` lets them compete on growing parts of the workload, with the runs of `rota.study.sweep`.
"""
