"""The command line. Nothing heavy is imported before a command runs: `rota --help` is quick."""

from rota.cli.app import main

__all__ = ["main"]
