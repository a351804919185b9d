"""The daemon: store, recovery and live configuration around the engine's loop."""
