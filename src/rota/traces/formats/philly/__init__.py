"""Microsoft's Philly trace: the derived CSV, the JSON log, its machines."""
