"""Vocabulary and machinery without I/O: jobs, topology, plans, events. Imports nothing of ours."""
