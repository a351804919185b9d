"""Gandiva_fair: users take turns by `stride` and trade GPU types (`trading`); see `policy`."""
