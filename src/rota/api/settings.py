"""Limits and switches of the API."""

import ipaddress

import msgspec

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
ANY_HOST = ("*",)


class ApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the API allows. The defaults suit a daemon that listens on the loopback address.

    `hosts` are the names by which clients may call it (the Host header without its port; `*`: any).
    A web page that makes a browser resolve its own name to this machine is refused by that.
    """

    hosts: tuple[str, ...] = LOOPBACK
    max_body_bytes: int = 8 * 2**20
    max_jobs: int = 10_000  # of one submission
    body_timeout_s: float = 30.0  # for the client to send its request

    requests_per_s: float = 500.0  # of one token, in the long run
    burst: int = 1_000  # at once
    agent_requests_per_s: float = 5_000.0  # many agents may share a token
    strangers_per_s: float = 5.0  # refused requests of one address
    strangers_burst: int = 50

    connections: int = 800
    streams: int = 64  # live events and followed logs
    streams_per_token: int = 16
    stream_s: float = 3_600.0  # then the client has to come again
    heartbeat_s: float = 15.0
    poll_s: float = 0.25  # between looks at a log that is followed

    agent_calls: int = 512  # at the same time: most of them wait for orders
    forecasts: int = 2  # at the same time: each simulates the cluster many times

    open_metrics: bool = False  # /metrics without a token
    queue_labels: int = 50  # queues with numbers of their own in /metrics; the rest is `other`

    tls_cert: str = ""
    tls_key: str = ""


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The `hosts` for an address to listen on: only loopback names for a loopback address."""
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return LOOPBACK if loopback else ANY_HOST
