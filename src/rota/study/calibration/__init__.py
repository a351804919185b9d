"""From a live log to costs, and back to a simulation of the same jobs.

`samples` reads what can be measured in a log, `fit` turns it into costs with intervals, `setting`
finds out what the log was made with, `replay` simulates, `pages` writes it down.
`rota.study.calibration.calibrate` does it all.
"""
