"""Runs for the tools that show traces: Perfetto, and collectors of OpenTelemetry."""
