"""Runs as values: one configuration gives one result, again and again.

`config.RunConfig` says everything about a run, `run.simulate` carries it out, `output` writes its
folder, `rerun` proves that a folder can be made again, `compare` puts policies side by side.
"""
