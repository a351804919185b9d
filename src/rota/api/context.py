"""Settings of the API, and what all requests share."""

import ipaddress
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from rota.api.board import BoardRoom
from rota.api.limits import Buckets, Lane, Slots
from rota.api.metrics import Metrics
from rota.api.visible import LogWatcher, VisibleLog
from rota.api.web import WebSessions
from rota.daemon.ports import Service
from rota.wire import MAX_BODY_BYTES, MAX_JOBS, Actor, SessionBasis

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANY_HOST = ("*",)

AgentSync = Callable[[bytes, str], bytes]
"""Takes an agent's report and the name of its token, and returns its orders; may block."""
LogExport = Callable[[], Iterator[bytes]]
"""The whole event log as a Parquet file, in pieces."""


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the API allows. The defaults suit a daemon that listens on the loopback address.

    `hosts` are the names by which clients may call it (the Host header without its port; `*`: any).
    A web page that makes a browser resolve its own name to this machine is refused by that.
    """

    hosts: tuple[str, ...] = LOOPBACK
    max_body_bytes: int = MAX_BODY_BYTES
    max_jobs: int = MAX_JOBS  # of one submission
    body_timeout_s: float = 30.0  # for the client to send its request

    requests_per_s: float = 500.0  # of one token, in the long run
    burst: int = 1_000  # at once
    agent_requests_per_s: float = 5_000.0  # many agents may share a token
    strangers_per_s: float = 5.0  # refused requests of one address
    strangers_burst: int = 50

    connections: int = 800  # more take the places of those that are silent
    connections_per_address: int = 400
    handshake_timeout_s: float = 10.0  # for a connection to agree on the encryption
    head_timeout_s: float = 10.0  # for a connection to send a whole request head
    stalled_s: float = 300.0  # for a client to take something of what it asked for
    keep_alive_s: int = 5  # that a connection stays open after an answer
    streams: int = 64  # live events and followed logs
    streams_per_token: int = 16
    pages: int = 600  # browsers that look at the board
    pages_per_token: int = 600
    slow_s: float = 60.0  # for a page to take what was sent
    stream_s: float = 3_600.0  # then the client has to come again
    heartbeat_s: float = 15.0
    poll_s: float = 0.25  # between looks at a log that is followed

    agent_calls: int = 512  # at the same time: most of them wait for orders
    forecasts: int = 2  # at the same time: each simulates the cluster many times
    forecasts_queue: int = 32  # that wait for that
    forecasts_per_caller: int = 8
    outputs: int = 16  # pieces of output that are read at the same time, from agents that may hang
    outputs_queue: int = 64  # that wait for that
    channels: int = 128  # calls into jobs at the same time: most of them wait for output
    channels_queue: int = 128  # that wait for that
    channels_per_caller: int = 64
    agent_lanes: int = 256  # agents that wait for calls at the same time, or bring answers
    logins: int = 4  # at the same time: each asks an identity provider that may hang
    logins_queue: int = 32  # that wait for that

    open_metrics: bool = False  # /metrics without a token
    queue_labels: int = 50  # queues with numbers of their own in /metrics; the rest is `other`

    tls_cert: str = ""
    tls_key: str = ""
    tls_clients: str = ""  # the authority of certificates that clients may show (PEM file)


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The `hosts` for an address to listen on: only loopback names for a loopback address."""
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return LOOPBACK if loopback else ANY_HOST


@dataclass
class Context:
    """The daemon and everything that is kept between requests."""

    service: Service
    settings: ApiSettings
    agent_sync: AgentSync | None = None
    agent_calls: AgentSync | None = None
    agent_pieces: AgentSync | None = None
    export_log: LogExport | None = None
    leads: Callable[[], bool] = lambda: True
    peers: Mapping[int, Actor] = field(default_factory=dict)  # by uid, on the local socket
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        limits = self.settings
        self.web = WebSessions(self.sender)
        self.metrics = Metrics(self.service, limits.queue_labels)
        self.log = VisibleLog(self.service)
        self.watcher = LogWatcher(self.service, self.closing)
        self.slots = Slots(limits.streams, limits.streams_per_token)
        self.pages = Slots(limits.pages, limits.pages_per_token)
        self.board = BoardRoom(self.service)
        self.callers = Buckets(limits.requests_per_s, limits.burst)
        self.agents = Buckets(limits.agent_requests_per_s, 2 * int(limits.agent_requests_per_s))
        self.strangers = Buckets(limits.strangers_per_s, limits.strangers_burst)
        self.agent_lane = Lane(limits.agent_calls)
        self.forecast_lane = Lane(
            limits.forecasts, limits.forecasts_queue, limits.forecasts_per_caller
        )
        self.login_lane = Lane(limits.logins, limits.logins_queue)
        self.output_lane = Lane(limits.outputs, limits.outputs_queue)
        self.channel_lane = Lane(limits.channels, limits.channels_queue, limits.channels_per_caller)
        self.call_lane = Lane(limits.agent_lanes)

    def sender(self, basis: SessionBasis) -> Actor | None:
        """Who it is at present that was recognised by this; None: nobody any more."""
        match basis.kind:
            case "token":
                return self.service.identities.holder(basis.value)
            case "certificate":
                return self.service.identities.recognise(basis.value)
            case "uid":
                known = self.peers.get(int(basis.value))
                return None if known is None else self.service.identities.account(known)
            case "person":
                return self.service.identities.person_actor(basis.value)
