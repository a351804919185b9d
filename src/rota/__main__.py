"""`python -m rota` is `rota`."""

from rota.cli.app import main

if __name__ == "__main__":
    main()
