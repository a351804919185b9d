"""The HTTP API of the daemon: REST, live events, metrics and health."""

from rota.api.app import create_app
from rota.api.serving import Server, serve
from rota.api.settings import ApiSettings, allowed_hosts

__all__ = ["ApiSettings", "Server", "allowed_hosts", "create_app", "serve"]
