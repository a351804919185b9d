"""The simulator of Chronus (SoCC 2021)."""
