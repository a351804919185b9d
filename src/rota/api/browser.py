"""Operations for those who do not know each other yet: a server's proof, and browsers."""

import time
from collections.abc import AsyncIterator
from hashlib import sha256

import structlog
from msgspec import UNSET
from starlette.responses import Response

from rota import web
from rota.api.auth import basis_of, cookie_of
from rota.api.limits import in_thread
from rota.api.problems import Refusal
from rota.api.routing import ApiCall, serves
from rota.api.streams import Stream, StreamLife
from rota.api.web import CODE_S, SESSION_S, is_signed, web_session_id
from rota.core.errors import ConflictError, NotFoundError, RotaError
from rota.wire import (
    CHALLENGE_BROWSER,
    CREATE_WEB_CODE,
    EVENT_STREAM,
    GET_ASSET,
    KEEP_BROWSER,
    LOG_IN,
    PROVE_SERVER,
    RESUME_BROWSER,
    SHOW_PAGE,
    STREAM_BOARD,
    BrowserKey,
    Challenge,
    LoginQuery,
    Problem,
    ProofQuery,
    ResumeRequest,
    ServerCode,
    StreamHeaders,
    WebCode,
)

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

log = structlog.get_logger("rota.api")


@serves(PROVE_SERVER)
async def prove_server(call: ApiCall, query: ProofQuery) -> ServerCode:
    """Prove to a client that this server knows its token, before the token is sent."""
    port = _port(call)
    code = call.service.identities.prove(query.token, query.nonce, port)
    if not code:
        raise stranger(call, "no such token", "check the token file")
    return ServerCode(code, port)


@serves(CREATE_WEB_CODE)
async def create_web_code(call: ApiCall) -> WebCode:
    """Make a code with which one browser may log in as the sender, once and soon."""
    # what the request shows says who it is, also later: a token may be revoked by then
    session = call.request.cookies.get(cookie_of(call.request), "")
    basis = basis_of(call.request) or call.context.web.basis(session)
    if basis is None:
        raise stranger(call, "the session is over", "log in again")
    code = call.context.web.code(basis)
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


@serves(KEEP_BROWSER)
def keep_browser(call: ApiCall, body: BrowserKey) -> None:
    """Let this browser come again after a restart of the daemon: it alone has the key's half."""
    session = call.request.cookies.get(cookie_of(call.request), "")
    kept = call.context.web.kept(session, body.key, time.time())
    if kept is None:
        raise ConflictError("this is for browsers that are logged in: see `rota web`")
    call.service.identities.keep_browser(kept)


@serves(CHALLENGE_BROWSER)
async def challenge_browser(call: ApiCall) -> Challenge:
    """Say what a browser has to sign that wants to come again."""
    return Challenge(call.context.web.challenge(), CODE_S)


@serves(RESUME_BROWSER)
async def resume_browser(call: ApiCall, body: ResumeRequest) -> Response:
    """Let a browser that was kept come again: a session as long as the former would have lasted.

    It signs `rota resume CHALLENGE PORT` (ECDSA, P-256, SHA-256) with the key that it was kept
    with; PORT is where it talks to us.
    """
    _count(call)
    web, now = call.context.web, time.time()
    kept = call.service.identities.kept_browser(body.key)
    port = _port(call)
    good = (
        web.answered(body.challenge)
        and kept is not None
        and is_signed(body.key, body.signature, body.challenge, port)
        and call.context.sender(kept.basis) is not None
    )
    if not good or kept is None:
        raise stranger(call, "this browser is not known any more", "run `rota web` again")
    session = web.begin_for(kept.basis, kept.until - now)
    again = web.kept(session, body.key, now)
    if again is not None:
        await in_thread(call.service.identities.keep_browser, again)
    response = Response(status_code=RESUME_BROWSER.status)
    await give_session(call, response, session, kept.until - now)
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


@serves(SHOW_PAGE)
async def show_page(call: ApiCall) -> Response:
    """Show the page for people: it asks this API for everything that it shows."""
    return _file(call, "index.html", {"Content-Security-Policy": CONTENT_POLICY})


@serves(GET_ASSET)
async def get_asset(call: ApiCall, asset: str) -> Response:
    """Get a script or a style sheet of the page."""
    return _file(call, asset, {})


def _file(call: ApiCall, name: str, headers: dict[str, str]) -> Response:
    try:
        content = web.asset(name)
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {name!r}") from None
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    headers |= {"Cache-Control": "no-cache", "ETag": tag}
    if call.request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(content, 200, headers, media_type=web.media_type(name))


@serves(STREAM_BOARD)
async def stream_board(call: ApiCall, headers: StreamHeaders) -> Response:
    """Follow which job has which GPU, as server-sent events.

    The first message (`full`) holds the whole board, those that follow (`delta`) what has changed.
    `nodes`: name, state, GPUs, type (in a delta with their place in the list before). `runs`: the
    owners of GPUs, in the order of the nodes, in base64: triples of variable-length numbers, the
    gap since the last place, how many, and the owner's difference to the last owner times two (and
    one more if it is negative); 0 owns nothing. `shared`: by place, all owners of a GPU that has
    several (in a delta: those that changed, empty if there is one or none). `jobs`: id, GPUs, since
    when, name, user, queue, use of its GPUs, of those that the token may see. A reader that is slow
    gets fewer messages.
    """
    after = headers.last if headers.last is not UNSET else 0
    content = _board_messages(call, after)
    return Stream(call.context, call.actor, content, EVENT_STREAM, page=True)


async def _board_messages(call: ApiCall, after: int) -> AsyncIterator[bytes]:
    board = call.context.board
    life = StreamLife(call.context, call.request)
    yield b"retry: 1000\n\n"
    try:
        while not await life.is_over():
            if await board.wait(after, life.patience_s()):
                after, data = board.messages(after, call.actor)
                if data:
                    yield data
            else:
                yield b": still here\n\n"
    except RotaError as error:
        log.warning("api.stream.ended", why=str(error))


def _port(call: ApiCall) -> int:
    """Where we listen, whatever the client calls us."""
    return int((call.request.scope.get("server") or ("", 0))[1] or 0)


def _count(call: ApiCall) -> None:
    """Nobody has shown anything yet: those who try often have to wait."""
    call.context.strangers.take(call.request.client.host if call.request.client else "")


def stranger(call: ApiCall, error: str, remedy: str) -> Refusal:
    """Refuse somebody who has shown nothing yet; those who try often have to wait."""
    _count(call)
    return Refusal(401, Problem(error, "unauthorised", remedy), {"WWW-Authenticate": "Bearer"})
