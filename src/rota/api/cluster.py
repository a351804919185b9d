"""Operations on nodes, queues and the daemon itself."""

import re
from typing import Annotated, Any

import msgspec
from fastapi import Path, Query, Response

from rota.api.access import ROLES, Asker
from rota.api.bodies import RawBody, decode, encode, keys_of, reading
from rota.api.context import Here
from rota.api.metrics import MEDIA_TYPE
from rota.api.problems import input_problem
from rota.api.routes import Route
from rota.api.status import Health, Readiness, Status
from rota.core.errors import NotFoundError
from rota.daemon.info import Actor, NodeInfo, QueueInfo

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    """A token to be made. Jobs of a token belong to the user of its name."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^{_NAME.pattern}$", max_length=64)]
    role: str


class MadeToken(msgspec.Struct):
    """The token itself is told this once; only its hash is kept."""

    name: str
    role: str
    token: str


class Changes(msgspec.Struct):
    """What a reload changed."""

    changes: list[str]


_NEW_TOKEN = msgspec.json.Decoder(NewToken)
NodeName = Annotated[str, Path(description="Name of the node.", examples=["n1"])]


def _known_node(name: str) -> str:
    if not _NODE.fullmatch(name):
        raise NotFoundError(f"there is no node {name[:64]!r}")
    return name


def list_nodes(here: Here) -> Response:
    """List all nodes."""
    return encode(here.service.nodes())


def drain_node(
    asker: Asker,
    here: Here,
    node: NodeName,
    *,
    stop: Annotated[bool, Query(description="Preempt what runs there.")] = False,
) -> Response:
    """Start nothing more on a node; what runs there may end, or is preempted with `stop`."""
    return encode(here.service.drain(_known_node(node), asker, stop=stop))


def undrain_node(asker: Asker, here: Here, node: NodeName) -> Response:
    """Use a drained node again."""
    return encode(here.service.undrain(_known_node(node), asker))


def remove_node(asker: Asker, here: Here, node: NodeName) -> Response:
    """Forget a node that nobody uses.

    It must be down or drained, with nothing left there; it is there again when its agent is.
    """
    here.service.remove_node(_known_node(node), asker)
    return Response(status_code=204)


def list_queues(here: Here) -> Response:
    """List all queues with what they use and ask for."""
    return encode(here.service.queues())


def get_status(here: Here) -> Response:
    """Show the daemon and its cluster in numbers."""
    return encode(here.service.status())


def whoami(asker: Asker) -> Response:
    """Tell whose token it is."""
    return encode(asker)


# --- tokens and configuration --------------------------------------------------------------------


def list_tokens(asker: Asker, here: Here) -> Response:
    """List the names and roles of all tokens."""
    return encode(here.service.tokens(asker))


def create_token(asker: Asker, here: Here, body: RawBody) -> Response:
    """Make a token. It is told this once."""
    new = decode(body, _NEW_TOKEN, keys_of(NewToken))
    if new.role not in ROLES:
        raise input_problem(f"unknown role {new.role[:64]!r}", f"one of: {', '.join(ROLES)}")
    if not _NAME.fullmatch(new.name):
        raise input_problem(f"bad name {new.name!r}", "letters, digits and ._@-, at most 64")
    token = here.service.create_token(new.name, new.role, asker)
    return encode(MadeToken(new.name, new.role, token), 201)


def revoke_token(
    asker: Asker, here: Here, name: Annotated[str, Path(description="Name of the token.")]
) -> Response:
    """Make a token worthless; its open streams end with their next heartbeat."""
    if not _NAME.fullmatch(name):
        raise NotFoundError(f"there is no token {name[:64]!r}")
    here.service.revoke_token(name, asker)
    return Response(status_code=204)


def reload_configuration(asker: Asker, here: Here) -> Response:
    """Read the configuration file again."""
    return encode(Changes(here.service.reload(asker)))


async def sync_agent(asker: Asker, here: Here, body: RawBody) -> Response:
    """Exchange news and orders with an agent.

    For agents of the same version only: the messages are not part of the public interface.
    """
    if here.agent_sync is None:
        raise NotFoundError("this daemon has no agents")
    with reading():
        answer = await here.agent_lane.run(here.agent_sync, body, asker)
    return Response(answer, media_type="application/json")


# --- for machines that watch ---------------------------------------------------------------------


async def check_health() -> Response:
    """Tell that the process answers."""
    return encode(Health(ok=True))


def check_ready(here: Here) -> Response:
    """Tell whether work can be accepted."""
    ready, why = here.service.ready()
    return encode(Readiness(ready, why), 200 if ready else 503)


def get_metrics(here: Here) -> Response:
    """Tell numbers for Prometheus."""
    return Response(here.metrics.render(), headers={"Content-Type": MEDIA_TYPE})


_ANY: dict[str, Any] = {}
ROUTES = (
    Route(method="GET", path="/nodes", call=list_nodes, tag="cluster", answer=list[NodeInfo]),
    Route(
        method="POST", path="/nodes/{node}/drain", call=drain_node, tag="cluster",
        answer=NodeInfo, about="The node afterwards.", errors=(409,),
    ),
    Route(
        method="POST", path="/nodes/{node}/undrain", call=undrain_node, tag="cluster",
        answer=NodeInfo, about="The node afterwards.", errors=(409,),
    ),
    Route(
        method="DELETE", path="/nodes/{node}", call=remove_node, tag="cluster", status=204,
        about="It is gone.", errors=(409,),
    ),
    Route(method="GET", path="/queues", call=list_queues, tag="cluster", answer=list[QueueInfo]),
    Route(method="GET", path="/status", call=get_status, tag="cluster", answer=Status),
    Route(method="GET", path="/whoami", call=whoami, tag="admin", answer=Actor),
    Route(method="GET", path="/tokens", call=list_tokens, tag="admin", answer=list[Actor]),
    Route(
        method="POST", path="/tokens", call=create_token, tag="admin", body=NewToken,
        answer=MadeToken, status=201, about="The token.", errors=(409,),
        examples={"a user": {"name": "alice", "role": "user"}},
    ),
    Route(
        method="DELETE", path="/tokens/{name}", call=revoke_token, tag="admin", status=204,
        about="It is worthless.", errors=(409,),
    ),
    Route(
        method="POST", path="/reload", call=reload_configuration, tag="admin", answer=Changes,
        about="What changed.", errors=(409,),
    ),
    Route(
        method="POST", path="/agent/sync", call=sync_agent, tag="agents", body=_ANY, answer=_ANY,
        about="Orders.", errors=(404, 409),
    ),
    Route(method="GET", path="/healthz", call=check_health, tag="health", answer=Health),
    Route(
        method="GET", path="/readyz", call=check_ready, tag="health", answer=Readiness,
        about="Ready.", also={503: Readiness},
    ),
    Route(
        method="GET", path="/metrics", call=get_metrics, tag="health", answer={"type": "string"},
        media="text/plain", about="Numbers in the text format of Prometheus.",
    ),
)  # fmt: skip
