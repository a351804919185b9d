"""Puts the app together."""

from typing import Any

from fastapi import FastAPI, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from rota.api import cluster, jobs, problems, streams
from rota.api.bodies import encode
from rota.api.context import AgentSync, Context, LogExport
from rota.api.gate import Gate
from rota.api.openapi import Schemas, document
from rota.api.routes import Route, add
from rota.api.settings import ApiSettings
from rota.core.errors import RotaError
from rota.core.version import VERSION
from rota.daemon.ports import Service


def create_app(
    service: Service,
    *,
    settings: ApiSettings | None = None,
    agent_sync: AgentSync | None = None,
    export_log: LogExport | None = None,
) -> FastAPI:
    """The API of a daemon, as an ASGI app.

    Args:
        service: The daemon.
        settings: Limits and switches.
        agent_sync: Takes the messages of agents; without it there are no agents.
        export_log: Writes the event log as Parquet; without it that route is missing.
    """
    context = Context(service, settings or ApiSettings(), agent_sync, export_log)
    app = FastAPI(
        title="Rota",
        version=VERSION,
        openapi_url=None,  # served below like every other operation
        docs_url=None,  # the page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    _add_routes(app, context)
    app.add_exception_handler(HTTPException, problems.from_refusal)
    app.add_exception_handler(RequestValidationError, problems.from_parameters)
    app.add_exception_handler(RotaError, problems.from_service)
    app.add_middleware(Gate, context=context)
    return app


def _add_routes(app: FastAPI, context: Context) -> None:
    async def get_schema() -> Response:
        """Describe this API (OpenAPI 3.1)."""
        return encode(app.openapi())

    schema_route = Route(
        method="GET", path="/openapi.json", call=get_schema, tag="health",
        answer={"type": "object"}, about="The OpenAPI document.",
    )  # fmt: skip
    export = (streams.EXPORT_ROUTE,) if context.export_log else ()
    routes = (*jobs.ROUTES, *streams.ROUTES, *export, *cluster.ROUTES, schema_route)
    schemas = Schemas(routes)
    for route in routes:
        context.queries[route.operation] = add(app, route, schemas)

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app, schemas.components)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's way to replace the document
