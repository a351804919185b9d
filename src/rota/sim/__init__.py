"""The simulated cluster: a virtual clock and exact completion times."""
