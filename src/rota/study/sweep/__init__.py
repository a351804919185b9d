"""Many runs from one description: a matrix of workloads, clusters, policies, options and seeds.

`spec` reads the description, `matrix` makes the cells of it, `plan` turns each cell into a task
with a content address, an executor (`local`, `on_ray`) carries tasks out, `store` keeps what came
out, `table` puts it together; `run.sweep` does all of it and can be killed at any time.
"""
