"""Operations on nodes, queues, tokens and the daemon itself."""

from typing import Any

from msgspec import UNSET
from starlette.responses import Response

from rota.api.metrics import MEDIA_TYPE
from rota.api.routing import ApiCall, encode, reading, serves
from rota.core.errors import NotFoundError
from rota.core.findings import Finding
from rota.core.membership import Membership
from rota.wire import (
    ADD_WINDOW,
    AUDIT_QUEUES,
    BEGIN_RESTART,
    CALL_AGENT,
    CHECK_HEALTH,
    CHECK_READY,
    CREATE_TOKEN,
    DRAIN_NODE,
    GET_AUTHORITY,
    GET_METRICS,
    GET_RESTART,
    GET_STATUS,
    INVITE_NODE,
    JOIN_NODE,
    LIST_CHOICES,
    LIST_LANES,
    LIST_NODES,
    LIST_QUEUES,
    LIST_TOKENS,
    LIST_WINDOWS,
    NODE_HISTORY,
    RELOAD,
    REMOVE_NODE,
    REMOVE_WINDOW,
    RENEW_NODE,
    REVOKE_TOKEN,
    STOP_RESTART,
    SYNC_AGENT,
    TRY_OUT,
    UNDRAIN_NODE,
    WHOAMI,
    Actor,
    Choices,
    DrainQuery,
    Health,
    Invitation,
    JoinRequest,
    Lanes,
    LanesQuery,
    MadeToken,
    NewInvitation,
    NewRestart,
    NewToken,
    NewWindow,
    NodeEvent,
    NodeInfo,
    QueueInfo,
    Readiness,
    ReloadResult,
    RenewRequest,
    RestartInfo,
    TokenInfo,
    TrialAnswer,
    WhatIf,
    WindowInfo,
)


@serves(LIST_NODES)
def list_nodes(call: ApiCall) -> list[NodeInfo]:
    """List all nodes."""
    return call.service.nodes()


@serves(DRAIN_NODE)
def drain_node(call: ApiCall, node: str, query: DrainQuery) -> NodeInfo:
    """Start nothing more on a node; what runs there may end, or is preempted with `stop`."""
    deadline_s = None if query.deadline_s is UNSET else query.deadline_s
    return call.service.drain(node, call.actor, stop=query.stop, deadline_s=deadline_s)


@serves(LIST_WINDOWS)
def list_windows(call: ApiCall) -> list[WindowInfo]:
    """List maintenance and reservations that are planned or going on."""
    return call.service.windows()


@serves(ADD_WINDOW)
def add_window(call: ApiCall, body: NewWindow) -> WindowInfo:
    """Plan a maintenance, or reserve nodes for users and queues."""
    return call.service.add_window(body, call.actor)


@serves(REMOVE_WINDOW)
def remove_window(call: ApiCall, window: str) -> None:
    """Give up a maintenance or a reservation, or end it early."""
    call.service.remove_window(window, call.actor)


@serves(BEGIN_RESTART)
def begin_restart(call: ApiCall, body: NewRestart) -> RestartInfo:
    """Let agents begin anew, one after the other; their jobs run on."""
    return call.service.begin_restart(body, call.actor)


@serves(GET_RESTART)
def get_restart(call: ApiCall) -> RestartInfo:
    """Tell how far the rolling restart is, or how the last one ended."""
    return call.service.restart_progress()


@serves(STOP_RESTART)
def stop_restart(call: ApiCall) -> RestartInfo:
    """Let no more agents begin anew; who was asked already does."""
    return call.service.stop_restart(call.actor)


@serves(NODE_HISTORY)
def node_history(call: ApiCall, node: str) -> list[NodeEvent]:
    """Tell when a node was lost and came back, and when and why it was closed to new jobs."""
    return call.service.node_history(node)


@serves(UNDRAIN_NODE)
def undrain_node(call: ApiCall, node: str) -> NodeInfo:
    """Use a drained node again."""
    return call.service.undrain(node, call.actor)


@serves(REMOVE_NODE)
def remove_node(call: ApiCall, node: str) -> None:
    """Forget a node that is not in use.

    It must be down or drained, with nothing left there; it is there again when its agent is.
    """
    call.service.remove_node(node, call.actor)


@serves(LIST_QUEUES)
def list_queues(call: ApiCall) -> list[QueueInfo]:
    """List all queues with what they use and ask for."""
    return call.service.queues()


@serves(AUDIT_QUEUES)
def audit_queues(call: ApiCall) -> list[Finding]:
    """Find queues that starve beside others that borrow, idle quotas, and jobs that never start.

    Also users and queues at their limits, and who causes preemptions.
    """
    return call.service.audit()


@serves(GET_STATUS)
def get_status(call: ApiCall) -> dict[str, Any]:
    """Show the daemon and its cluster in numbers."""
    return call.service.status()


@serves(LIST_LANES)
def list_lanes(call: ApiCall, query: LanesQuery) -> Lanes:
    """Show who had which GPUs; names only of jobs that the token may see."""
    return call.service.lanes(query, call.actor)


@serves(LIST_CHOICES)
def list_choices(call: ApiCall) -> Choices:
    """Show which policy holds, with its parameters, and which there are."""
    return call.service.choices()


@serves(TRY_OUT)
async def try_out(call: ApiCall, body: WhatIf) -> TrialAnswer:
    """Simulate the present queue under another policy, or on another cluster; nothing changes."""
    return await call.context.forecast_lane.run_for(call.actor.name, call.service.try_out, body)


# --- tokens and configuration --------------------------------------------------------------------


@serves(WHOAMI)
async def whoami(call: ApiCall) -> Actor:
    """Show the name and role of the token."""
    return call.actor


@serves(LIST_TOKENS)
def list_tokens(call: ApiCall) -> list[TokenInfo]:
    """List the names and roles of all tokens, and whose they are."""
    return call.service.identities.tokens()


@serves(CREATE_TOKEN)
def create_token(call: ApiCall, body: NewToken) -> MadeToken:
    """Create a token. It is shown only once."""
    token = call.service.identities.create_token(
        body.name, body.role, call.actor, user=body.user, valid_s=body.valid_s
    )
    return MadeToken(body.name, body.role, token)


@serves(REVOKE_TOKEN)
def revoke_token(call: ApiCall, name: str) -> None:
    """Make a token worthless; its open streams end with their next heartbeat."""
    call.service.identities.revoke_token(name, call.actor)


@serves(RELOAD)
def reload_configuration(call: ApiCall) -> ReloadResult:
    """Read the configuration file again."""
    return ReloadResult(call.service.reload(call.actor))


@serves(SYNC_AGENT)
async def sync_agent(call: ApiCall, body: bytes) -> bytes:
    """Exchange news and orders with an agent.

    For agents of the same version only: the messages are not part of the public interface.
    """
    if call.context.agent_sync is None:
        raise NotFoundError("this daemon has no agents")
    with reading():
        return await call.context.agent_lane.run(call.context.agent_sync, body, call.actor.name)


@serves(CALL_AGENT)
async def call_agent(call: ApiCall, body: bytes) -> bytes:
    """Exchange answers and calls with an agent, beside its reports.

    For agents of the same version only: the messages are not part of the public interface.
    """
    if call.context.agent_calls is None:
        raise NotFoundError("this daemon has no agents")
    with reading():
        return await call.context.call_lane.run(call.context.agent_calls, body, call.actor.name)


@serves(INVITE_NODE)
def invite_node(call: ApiCall, body: NewInvitation) -> Invitation:
    """Make a code with which one machine may join once, as this node."""
    return Invitation(
        body.node, call.service.identities.invite(body.node, body.valid_s, call.actor)
    )


@serves(JOIN_NODE)
def join_node(call: ApiCall, body: JoinRequest) -> Membership:
    """Exchange the secret of a code for the node's own credential; it works once."""
    address = call.request.client.host if call.request.client else ""
    call.context.strangers.take(address)  # who guesses has to wait
    return call.service.identities.join(body.secret, body.node, body.csr)


@serves(RENEW_NODE)
def renew_node(call: ApiCall, body: RenewRequest) -> Membership:
    """Get another certificate for a node that has joined."""
    return call.service.identities.renew_certificate(body.csr, call.actor)


@serves(GET_AUTHORITY)
async def get_authority(call: ApiCall) -> bytes:
    """Show the certificate of the daemon's own authority, which a code names."""
    return call.service.identities.authority().encode()


# --- monitoring ----------------------------------------------------------------------------------


@serves(CHECK_HEALTH)
async def check_health(call: ApiCall) -> Health:  # noqa: ARG001 - as all handlers
    """Answer while the process is alive."""
    return Health(ok=True)


@serves(CHECK_READY)
def check_ready(call: ApiCall) -> Response:
    """Say whether work can be accepted."""
    ready, why = call.service.ready()
    return encode(Readiness(ready, why), 200 if ready else 503)


@serves(GET_METRICS)
def get_metrics(call: ApiCall) -> Response:
    """Show numbers for Prometheus."""
    return Response(call.context.metrics.render(), headers={"Content-Type": MEDIA_TYPE})
