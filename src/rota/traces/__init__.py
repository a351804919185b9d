"""Workloads and clusters from files, to files, and from seeded generators.

`read.read_workload` reads a trace in any registered format, `write.write_workload` writes the plain
csv, `generate.generate` makes a synthetic workload, `cluster.parse_cluster` reads `--cluster`.
"""
