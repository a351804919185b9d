"""Operations for those who do not know each other yet: a server's proof, and browsers."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from rota.api.auth import cookie_of, sender_of
from rota.api.limits import in_thread
from rota.api.problems import Refusal
from rota.api.routing import ApiCall, serves
from rota.api.web import CODE_S, SESSION_S, web_session_id
from rota.wire import (
    CREATE_WEB_CODE,
    LOG_IN,
    PROVE_SERVER,
    SHOW_OVERVIEW,
    LoginQuery,
    Problem,
    ProofQuery,
    ServerCode,
    WebCode,
)


@serves(PROVE_SERVER)
async def prove_server(call: ApiCall, query: ProofQuery) -> ServerCode:
    """Prove to a client that this server knows its token, before the token is sent."""
    port = int((call.request.scope.get("server") or ("", 0))[1] or 0)
    code = call.service.prove(query.token, query.nonce, port)
    if not code:
        raise stranger(call, "no such token", "check the token file")
    return ServerCode(code, port)


@serves(CREATE_WEB_CODE)
async def create_web_code(call: ApiCall) -> WebCode:
    """Make a code with which one browser may log in as the sender, once and soon."""
    # the headers and the connection say who it is, also later: a token may be revoked by then
    request = Request({**call.request.scope})
    code = call.context.web.code(partial(sender_of, call.context, request))
    return WebCode(f"{LOG_IN.path}?code={code}", CODE_S)


@serves(LOG_IN)
async def log_in(call: ApiCall, query: LoginQuery) -> Response:
    """Exchange a code for a session: a cookie that only this server and no script can read."""
    session = call.context.web.begin(query.code)
    if session is None:
        raise stranger(call, "this code was used or is too old", "run `rota web` again")
    response = Response("logged in\n", LOG_IN.status, {"Location": "/"}, media_type=LOG_IN.media)
    await give_session(call, response, session, SESSION_S)
    return response


async def give_session(call: ApiCall, response: Response, session: str, seconds: float) -> None:
    """Let a browser keep its session, and note that it began."""
    request = call.request
    response.set_cookie(
        cookie_of(request), session, max_age=int(seconds), path="/", httponly=True,
        samesite="strict", secure=request.url.scheme == "https",
    )  # fmt: skip
    actor = call.context.web.actor(session)
    name = actor.name if actor else "nobody"
    text = f"{name} logged in with a browser: session {web_session_id(session)}"
    await in_thread(call.service.note, text)


@serves(SHOW_OVERVIEW)
def show_overview(call: ApiCall) -> bytes:
    """Show who is logged in, and the cluster in a few lines of text."""
    status = call.service.status()
    gpus = status.get("gpus", {})
    lines = [
        f"Rota: logged in as {call.actor.name} ({call.actor.role})",
        f"policy {status.get('policy', '')}, placement {status.get('placement', '')}",
        f"GPUs: {gpus.get('used', 0):g} of {gpus.get('total', 0):g} in use",
    ]
    lines += [f"{state.lower()} jobs: {n}" for state, n in status.get("jobs", {}).items() if n]
    lines += [f"{node.name}: {node.state}, {node.free_gpus:g} of {node.gpus:g} GPUs free"
              for node in call.service.nodes()]  # fmt: skip
    return "\n".join([*lines, ""]).encode()


def stranger(call: ApiCall, error: str, remedy: str) -> Refusal:
    """Refuse somebody who has shown nothing yet; those who try often have to wait."""
    call.context.strangers.take(call.request.client.host if call.request.client else "")
    return Refusal(401, Problem(error, "unauthorised", remedy), {"WWW-Authenticate": "Bearer"})
