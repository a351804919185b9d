"""Themis: auctions of leases (`policy`, `auction`) by finish-time fairness (`fairness`)."""
