"""What all routes share."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from rota.api.hub import Hub
from rota.api.lanes import Lane
from rota.api.limits import Buckets, Slots
from rota.api.metrics import Metrics
from rota.api.settings import ApiSettings
from rota.api.sight import Sight
from rota.daemon.info import Actor
from rota.daemon.ports import Service

AgentSync = Callable[[bytes, Actor], bytes]
"""Takes what an agent tells and returns what it shall do; may block."""
LogExport = Callable[[Actor], Iterator[bytes]]
"""The whole event log as a Parquet file, in pieces."""


@dataclass
class Context:
    """The daemon and everything that is kept between requests."""

    service: Service
    settings: ApiSettings
    agent_sync: AgentSync | None = None
    export_log: LogExport | None = None
    queries: dict[str, frozenset[str]] = field(default_factory=dict)  # known keys by operation
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        limits = self.settings
        self.metrics = Metrics(self.service, limits.queue_labels)
        self.sight = Sight(self.service)
        self.hub = Hub(self.service, self.closing)
        self.slots = Slots(limits.streams, limits.streams_per_token)
        self.callers = Buckets(limits.requests_per_s, limits.burst)
        self.agents = Buckets(limits.agent_requests_per_s, 2 * int(limits.agent_requests_per_s))
        self.strangers = Buckets(limits.strangers_per_s, limits.strangers_burst)
        self.agent_lane = Lane(limits.agent_calls)
        self.forecast_lane = Lane(limits.forecasts)


async def of_request(request: Request) -> Context:
    """The context of the app that serves this request."""
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(of_request)]
