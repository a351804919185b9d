"""Who may come in: people, tokens, sessions, machines that joined, and log-in by a provider.

What changes here is noted in the event log, with who did it.
"""

from collections.abc import Callable
from threading import Lock

import msgspec
from msgspec import UNSET

from rota.core.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from rota.core.membership import Membership
from rota.core.tenants import TenantTree
from rota.core.words import duration
from rota.daemon.browsers import Browsers
from rota.daemon.oidc import Identity, Provider
from rota.daemon.tokens import Tokens
from rota.wire import (
    Actor,
    KeptBrowser,
    LoginAnswer,
    LoginStart,
    MadeSession,
    NewPerson,
    Person,
    PersonChange,
    SessionInfo,
    TokenInfo,
)


class Identities:
    """Implements `IdentityService`: who somebody is, and what tells so."""

    def __init__(
        self,
        tokens: Tokens,
        browsers: Browsers,
        *,
        note: Callable[[str], None],
        last_job: Callable[[str], int],
        tenants: Callable[[], TenantTree],
        provider: Provider | None = None,
    ) -> None:
        """Know everybody that the store knows.

        Args:
            tokens: Tokens, people and machines.
            browsers: Those that may come again.
            note: Writes something into the event log.
            last_job: The last job that cannot be that of a new holder of a name.
            tenants: Queues and priority classes that are declared at present.
            provider: By whom people log in.
        """
        self._tokens = tokens
        self._people = tokens.people
        self._browsers = browsers
        self._note = note
        self._last_job = last_job
        self._tenants = tenants
        self._provider = provider
        self._door = Lock()

    def person(self, name: str) -> Person | None:
        """The person of this name, if there is one."""
        return self._people.find(name)

    def release(self, node: str) -> None:
        """A node was removed: any token may speak for it."""
        self._tokens.release(node)

    # --- tokens -----------------------------------------------------------------------------------

    def authenticate(self, token: str) -> Actor | None:
        """Whose token is it?"""
        return self._tokens.authenticate(token)

    def holder(self, digest: str) -> Actor | None:
        """Whose token has this digest?"""
        return self._tokens.holder(digest)

    def recognise(self, certificate: str) -> Actor | None:
        """Whose certificate has this SHA-256?"""
        return self._tokens.members.recognise(certificate)

    def authority(self) -> str:
        """The certificate of the daemon's own authority (PEM)."""
        known = self._tokens.members.authority
        if known is None:
            raise NotFoundError("this daemon has no authority of its own: see `rota tls init`")
        return known.pem

    def invite(self, node: str, valid_s: float, actor: Actor) -> str:
        """A code with which one machine may join once, as this node."""
        code = self._tokens.invite(node, valid_s)
        self._note(f"node {node!r} invited by {actor.name}")
        return str(code)

    def join(self, secret: str, node: str, csr: str = "") -> Membership:
        """Exchange the secret of a code for the node's own credential."""
        joined = self._tokens.join(secret, node, csr)
        self._note(f"node {node!r} joined")
        return joined

    def renew_certificate(self, csr: str, actor: Actor) -> Membership:
        """Another certificate for a node that has joined."""
        return self._tokens.members.renew(actor.name, csr)

    def prove(self, label: str, nonce: str, port: int) -> str:
        """The proof that we know the token with this label; empty if we do not."""
        return self._tokens.prove(label, nonce, port)

    def create_token(
        self, name: str, role: str, actor: Actor, *, user: str = "", valid_s: float | None = None
    ) -> str:
        """A new token; only its digest is kept. `user`: the person whose it is."""
        after_job = self._after_job(name) if not user else 0
        token = self._tokens.create(name, role, after_job=after_job, person=user, valid_s=valid_s)
        whose = f" for {user}" if user and user != name else ""
        until = f", for {duration(round(valid_s))}" if valid_s is not None else ""
        self._note(f"token {name!r} with the role {role}{whose}{until} created by {actor.name}")
        return token

    def tokens(self) -> list[TokenInfo]:
        """Names and roles."""
        return self._tokens.all()

    def revoke_token(self, name: str, actor: Actor) -> None:
        """It is worth nothing from now on."""
        if name == actor.name:
            raise ConflictError(f"token {name!r} is the one that you use: use another to revoke it")
        self._tokens.revoke(name)
        self._note(f"token {name!r} revoked by {actor.name}")

    # --- people -----------------------------------------------------------------------------------

    def account(self, actor: Actor) -> Actor | None:
        """Somebody whom the machine knows by this name; None: they are disabled."""
        return self._tokens.account(actor)

    def people(self) -> list[Person]:
        """Everybody, by name."""
        return self._people.all()

    def add_person(self, new: NewPerson, actor: Actor) -> Person:
        """Somebody who may use the cluster; a token of their name is theirs from now on."""
        self._check_limits(new)
        person = self._tokens.add_person(new, after_job=self._after_job(new.name))
        self._note(f"person {person.name!r} added by {actor.name}: {_told(person)}")
        return person

    def change_person(self, name: str, change: PersonChange, actor: Actor) -> Person:
        """Let some things be different; None where the configuration shall say it."""
        self._check_limits(change)
        if name == actor.name and change.role is not UNSET:
            raise ConflictError(f"you are {name}: let another administrator change your role")
        person = self._people.change(name, change)
        self._note(f"person {name!r} changed by {actor.name}: {_told(person)}")
        return person

    def _after_job(self, name: str) -> int:
        """The last job that is not that of who gets this name; one that is known keeps theirs."""
        return 0 if self._tokens.has(name) else self._last_job(name)

    def _check_limits(self, wanted: NewPerson | PersonChange) -> None:
        """Names that are not declared would be mistakes."""
        tenants = self._tenants()
        for key, known in (
            ("queues", list(tenants.names)),
            ("priority_classes", [each.name for each in tenants.classes]),
        ):
            for name in getattr(wanted, key) or ():
                if name not in known:
                    told = ", ".join(known) or "none"
                    raise InputError(f"{key}: {name!r} is not declared; declared here: {told}")

    def allow_person(self, name: str, actor: Actor, *, allowed: bool) -> Person:
        """Let somebody in, or end what their tokens and sessions are good for, at once."""
        if name == actor.name and not allowed:
            raise ConflictError(f"you are {name}: let another administrator disable you")
        person = self._people.allow(name, allowed=allowed)
        self._note(f"person {name!r} {'enabled' if allowed else 'disabled'} by {actor.name}")
        return person

    def person_actor(self, name: str) -> Actor | None:
        """What a person is at present; None: they are disabled."""
        return self._people.actor(name)

    def sessions(self) -> list[SessionInfo]:
        """Sessions of people that are not over, those of browsers excepted."""
        return self._people.sessions()

    def end_session(self, session: str, actor: Actor) -> bool:
        """End one, by id; False if there is none."""
        ended = self._people.end(session)
        if ended:
            self._note(f"session {session} ended by {actor.name}")
        return ended

    def keep_browser(self, browser: KeptBrowser) -> None:
        """Let a browser come again with its key."""
        self._browsers.keep(browser)

    def kept_browser(self, key: str) -> KeptBrowser | None:
        """The browser that has this key, if it may come again."""
        return self._browsers.find(key)

    def forget_browser(self, session: str) -> None:
        """A browser's session was ended, by its id."""
        self._browsers.forget(session)

    def begin_session(self, name: str, seconds: float) -> MadeSession:
        """Somebody has shown who they are."""
        made = self._people.begin(name, seconds)
        self._note(f"{name} logged in: session {made.id}")
        return made

    def begin_login(self, redirect: str) -> LoginStart:
        """Where a browser has to go to show who somebody is."""
        return self._known_provider().begin(redirect)

    def finish_login(self, answer: LoginAnswer, issuer: str = "") -> Person:
        """Whom the identity provider has recognised; they are added when they first come."""
        found = self._known_provider().finish(answer, issuer)
        with self._door:  # they may come twice at the same time
            return self._come(found)

    def _come(self, found: Identity) -> Person:
        person = self._people.of_subject(found.subject)
        if person is None:
            person = self._welcome(found)
        elif (found.role, found.queues) != (person.role, person.queues):
            change = PersonChange(role=found.role, queues=found.queues)
            person = self._people.change(person.name, change)
            self._note(f"person {person.name!r} changed by the identity provider: {_told(person)}")
        if person.disabled:
            raise ForbiddenError(f"{person.name} is disabled: ask whoever runs this cluster")
        return person

    def _welcome(self, found: Identity) -> Person:
        """Somebody who logs in for the first time.

        A name that is known already is somebody else's: what the provider calls people may change.
        """
        if self._tokens.has(found.name):
            raise ForbiddenError(
                f"the name {found.name!r} is taken here: if it is yours, let an administrator say "
                f"so: rota user change {found.name} --subject {found.subject[:255]}"
            )
        new = NewPerson(
            name=found.name, role=found.role, queues=found.queues, subject=found.subject
        )
        person = self._tokens.add_person(new, after_job=self._after_job(new.name))
        self._note(f"person {person.name!r} added by the identity provider: {_told(person)}")
        return person

    def _known_provider(self) -> Provider:
        if self._provider is None:
            raise NotFoundError("nobody logs in here: set oidc.issuer in the configuration")
        return self._provider

    @property
    def session_s(self) -> float:
        """How long somebody stays logged in."""
        return self._known_provider().settings.session_s


def _told(person: Person) -> str:
    """What somebody is, for the log."""
    said = {
        key: ", ".join(value) or "none" if isinstance(value, tuple) else value
        for key, value in msgspec.to_builtins(person).items()
    }
    return "; ".join(f"{key} {said[key]}" for key in said if key not in ("name", "after_job"))
