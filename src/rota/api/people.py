"""Operations on people, their sessions, and log-in by an identity provider."""

import time
from functools import partial

import msgspec
from starlette.responses import Response

from rota.api.auth import cookie_of
from rota.api.browser import give_session, stranger
from rota.api.routing import ApiCall, serves
from rota.api.web import web_session_id
from rota.core.errors import ForbiddenError, NotFoundError
from rota.wire import (
    ADD_PERSON,
    ADMIN,
    BEGIN_LOGIN,
    BEGIN_WEB_LOGIN,
    CHANGE_PERSON,
    DISABLE_PERSON,
    ENABLE_PERSON,
    END_SESSION,
    FINISH_LOGIN,
    FINISH_WEB_LOGIN,
    LIST_PEOPLE,
    LIST_SESSIONS,
    LoginAnswer,
    LoginRequest,
    LoginStart,
    MadeSession,
    NewPerson,
    Person,
    PersonChange,
    ProviderQuery,
    SessionBasis,
    SessionInfo,
)

ATTEMPT_S = 600
# The answer comes from another site: only a page of ours may ask for `/` with the session's cookie.
ONWARD = b"""<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>Rota</title>
<a href="/">logged in</a>
"""


@serves(LIST_PEOPLE)
def list_people(call: ApiCall) -> list[Person]:
    """List everybody who was added."""
    return call.service.identities.people()


@serves(ADD_PERSON)
def add_person(call: ApiCall, body: NewPerson) -> Person:
    """Add somebody. A token of their name, if there is one, is theirs from now on."""
    return call.service.identities.add_person(body, call.actor)


@serves(CHANGE_PERSON)
def change_person(call: ApiCall, person: str, body: PersonChange) -> Person:
    """Change what somebody is and may submit, for tokens and sessions that there are, too."""
    return call.service.identities.change_person(person, body, call.actor)


@serves(DISABLE_PERSON)
def disable_person(call: ApiCall, person: str) -> Person:
    """Let somebody in no more: their sessions end, their tokens are worth nothing."""
    return call.service.identities.allow_person(person, call.actor, allowed=False)


@serves(ENABLE_PERSON)
def enable_person(call: ApiCall, person: str) -> Person:
    """Let somebody in again; their tokens are good again, sessions that ended are not."""
    return call.service.identities.allow_person(person, call.actor, allowed=True)


@serves(LIST_SESSIONS)
def list_sessions(call: ApiCall) -> list[SessionInfo]:
    """List one's own sessions; administrators see all."""
    found = [*call.service.identities.sessions(), *call.context.web.all(time.time())]
    mine = [each for each in found if call.actor.role == ADMIN or each.user == call.actor.name]
    here = web_session_id(call.request.cookies.get(cookie_of(call.request), ""))
    shown = [msgspec.structs.replace(each, current=True) if each.id == here else each
             for each in mine]  # fmt: skip
    return sorted(shown, key=lambda each: each.began_at)


@serves(END_SESSION)
def end_session(call: ApiCall, session: str) -> None:
    """End a session of one's own, at once; administrators end any."""
    theirs = [*call.service.identities.sessions(), *call.context.web.all(time.time())]
    found = next((each for each in theirs if each.id == session), None)
    if found is None or (call.actor.role != ADMIN and found.user != call.actor.name):
        raise NotFoundError(f"there is no session {session!r}: see `rota session ls`")
    if call.context.web.end(session):
        call.service.identities.forget_browser(session)
        call.service.note(f"session {session} of {found.user} ended by {call.actor.name}")
    else:
        call.service.identities.end_session(session, call.actor)


# --- log-in --------------------------------------------------------------------------------------


@serves(BEGIN_LOGIN)
async def begin_login(call: ApiCall, body: LoginRequest) -> LoginStart:
    """Begin to log in with `rota login`: where the browser has to go."""
    _count(call)
    return await call.context.login_lane.run(call.service.identities.begin_login, body.redirect)


@serves(FINISH_LOGIN)
async def finish_login(call: ApiCall, body: LoginAnswer) -> MadeSession:
    """Exchange the identity provider's answer for a session; it works once."""
    _count(call)
    return await call.context.login_lane.run(partial(_logged_in, call), body)


def _logged_in(call: ApiCall, answer: LoginAnswer) -> MadeSession:
    person = call.service.identities.finish_login(answer)
    return call.service.identities.begin_session(person.name, call.service.identities.session_s)


@serves(BEGIN_WEB_LOGIN)
async def begin_web_login(call: ApiCall) -> Response:
    """Send a browser to the identity provider."""
    _count(call)
    url = call.request.url
    redirect = f"{url.scheme}://{url.netloc}{FINISH_WEB_LOGIN.path}"
    start = await call.context.login_lane.run(call.service.identities.begin_login, redirect)
    response = Response(
        "to the identity provider\n", BEGIN_WEB_LOGIN.status, {"Location": start.url},
        media_type=BEGIN_WEB_LOGIN.media,
    )  # fmt: skip
    response.set_cookie(
        cookie_of(call.request, "login"), start.secret, max_age=ATTEMPT_S, path="/",
        httponly=True, samesite="lax", secure=url.scheme == "https",
    )  # fmt: skip
    return response


@serves(FINISH_WEB_LOGIN)
async def finish_web_login(call: ApiCall, query: ProviderQuery) -> Response:
    """Take the identity provider's answer: a session for the browser that began to log in."""
    _count(call)
    kept = cookie_of(call.request, "login")
    secret = call.request.cookies.get(kept, "")
    if query.error:
        raise ForbiddenError(f"the identity provider says {query.error!r}: begin again")
    if not secret or not query.code:
        raise stranger(call, "this browser did not begin to log in", "begin at /web/oidc")
    answer = LoginAnswer(secret[:200], query.state, query.code)
    person = await call.context.login_lane.run(
        call.service.identities.finish_login, answer, query.iss
    )
    seconds = call.service.identities.session_s
    session = call.context.web.begin_for(SessionBasis("person", person.name), seconds)
    response = Response(ONWARD, media_type=FINISH_WEB_LOGIN.media)
    response.delete_cookie(
        kept, path="/", httponly=True, samesite="lax", secure=call.request.url.scheme == "https"
    )
    await give_session(call, response, session, seconds)
    return response


def _count(call: ApiCall) -> None:
    """Nobody has shown anything yet: those who try often have to wait."""
    call.context.strangers.take(call.request.client.host if call.request.client else "")
