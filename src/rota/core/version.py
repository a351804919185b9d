"""The version of Rota, for modules that write it into results; users read `rota.__version__`."""

VERSION = "0.1.0"
