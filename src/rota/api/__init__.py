"""The HTTP API of the daemon: REST, live events, metrics and health."""

from rota.api.app import create_app, openapi_document
from rota.api.context import ApiSettings, allowed_hosts
from rota.api.serving import Server, serve

__all__ = ["ApiSettings", "Server", "allowed_hosts", "create_app", "openapi_document", "serve"]
