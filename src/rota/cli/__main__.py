"""`python -m rota.cli` is `rota`."""

from rota.cli.app import main

main()
