"""Operations on nodes, queues, tokens and the daemon itself."""

from typing import Any

from starlette.responses import Response

from rota.api.metrics import MEDIA_TYPE
from rota.api.routing import Ask, encode, reading, serves
from rota.core.errors import NotFoundError
from rota.wire import (
    CHECK_HEALTH,
    CHECK_READY,
    CREATE_TOKEN,
    DRAIN_NODE,
    GET_METRICS,
    GET_STATUS,
    LIST_NODES,
    LIST_QUEUES,
    LIST_TOKENS,
    RELOAD,
    REMOVE_NODE,
    REVOKE_TOKEN,
    SYNC_AGENT,
    UNDRAIN_NODE,
    WHOAMI,
    Actor,
    Changes,
    DrainQuery,
    Health,
    MadeToken,
    NewToken,
    NodeInfo,
    QueueInfo,
    Readiness,
)


@serves(LIST_NODES)
def list_nodes(ask: Ask) -> list[NodeInfo]:
    """List all nodes."""
    return ask.service.nodes()


@serves(DRAIN_NODE)
def drain_node(ask: Ask, node: str, query: DrainQuery) -> NodeInfo:
    """Start nothing more on a node; what runs there may end, or is preempted with `stop`."""
    return ask.service.drain(node, ask.actor, stop=query.stop)


@serves(UNDRAIN_NODE)
def undrain_node(ask: Ask, node: str) -> NodeInfo:
    """Use a drained node again."""
    return ask.service.undrain(node, ask.actor)


@serves(REMOVE_NODE)
def remove_node(ask: Ask, node: str) -> None:
    """Forget a node that is not in use.

    It must be down or drained, with nothing left there; it is there again when its agent is.
    """
    ask.service.remove_node(node, ask.actor)


@serves(LIST_QUEUES)
def list_queues(ask: Ask) -> list[QueueInfo]:
    """List all queues with what they use and ask for."""
    return ask.service.queues()


@serves(GET_STATUS)
def get_status(ask: Ask) -> dict[str, Any]:
    """Show the daemon and its cluster in numbers."""
    return ask.service.status()


# --- tokens and configuration --------------------------------------------------------------------


@serves(WHOAMI)
async def whoami(ask: Ask) -> Actor:
    """Show the name and role of the token."""
    return ask.actor


@serves(LIST_TOKENS)
def list_tokens(ask: Ask) -> list[Actor]:
    """List the names and roles of all tokens."""
    return ask.service.tokens()


@serves(CREATE_TOKEN)
def create_token(ask: Ask, body: NewToken) -> MadeToken:
    """Create a token. It is shown only once."""
    token = ask.service.create_token(body.name, body.role, ask.actor)
    return MadeToken(body.name, body.role, token)


@serves(REVOKE_TOKEN)
def revoke_token(ask: Ask, name: str) -> None:
    """Make a token worthless; its open streams end with their next heartbeat."""
    ask.service.revoke_token(name, ask.actor)


@serves(RELOAD)
def reload_configuration(ask: Ask) -> Changes:
    """Read the configuration file again."""
    return Changes(ask.service.reload(ask.actor))


@serves(SYNC_AGENT)
async def sync_agent(ask: Ask, body: bytes) -> bytes:
    """Exchange news and orders with an agent.

    For agents of the same version only: the messages are not part of the public interface.
    """
    if ask.context.agent_sync is None:
        raise NotFoundError("this daemon has no agents")
    with reading():
        return await ask.context.agent_lane.run(ask.context.agent_sync, body)


# --- monitoring ----------------------------------------------------------------------------------


@serves(CHECK_HEALTH)
async def check_health(ask: Ask) -> Health:  # noqa: ARG001 - as all handlers
    """Answer while the process is alive."""
    return Health(ok=True)


@serves(CHECK_READY)
def check_ready(ask: Ask) -> Response:
    """Say whether work can be accepted."""
    ready, why = ask.service.ready()
    return encode(Readiness(ready, why), 200 if ready else 503)


@serves(GET_METRICS)
def get_metrics(ask: Ask) -> Response:
    """Show numbers for Prometheus."""
    return Response(ask.context.metrics.render(), headers={"Content-Type": MEDIA_TYPE})
