"""The HTTP API of the daemon: REST, live events, metrics and health."""

from rota.api.app import create_app, openapi_document
from rota.api.context import ApiSettings, allowed_hosts
from rota.api.serving import Server, listen, serve
from rota.api.standby import create_standby

__all__ = [
    "ApiSettings",
    "Server",
    "allowed_hosts",
    "create_app",
    "create_standby",
    "listen",
    "openapi_document",
    "serve",
]
