"""Bearer tokens, of which only the digests are kept."""

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from rota.core.errors import ConflictError, InputError, NotFoundError
from rota.core.membership import Membership
from rota.core.proof import server_code, token_digest, token_label
from rota.daemon.members import Members
from rota.daemon.people import People, lesser
from rota.daemon.store import Store, StoredToken
from rota.live.agent.identity import JoinCode
from rota.live.files import replace_file
from rota.wire import AGENT, ROLES, TOKEN_NAME, Actor, NewPerson, Person, TokenInfo

_PREFIX = "rota_"


class Tokens:
    """Tokens are 256 random bits, so a plain digest is as good as a slow one.

    One that belongs to a person is worth at most what the person is, and nothing while they are
    disabled. `clock`: Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._load()
        self.members = Members(store, clock)
        self.people = People(store, clock)
        self.invited_only = False  # an agent's token is not enough: machines have to join
        self._speaks_for = store.node_tokens()  # node -> name of the token

    def _load(self) -> None:
        self._tokens = {token.digest: token for token in self._store.tokens()}

    # --- who it is --------------------------------------------------------------------------------

    def authenticate(self, token: str) -> Actor | None:
        """Whose token is it?"""
        return self.holder(token_digest(token))

    def holder(self, digest: str) -> Actor | None:
        """Whose token has this digest?"""
        found = self._tokens.get(digest)
        if found is None:
            return self.people.recognise(digest) or self.members.recognise(digest)
        if found.until_unix is not None and found.until_unix <= self._clock():
            return None
        if found.person:
            return self.people.actor(found.person, found.role)
        return Actor(found.name, found.role, found.after_job)

    def account(self, actor: Actor) -> Actor | None:
        """Somebody whom the machine knows by this name; a person of that name counts for more."""
        if self.people.find(actor.name) is None:
            return actor
        return self.people.actor(actor.name, actor.role)

    def prove(self, label: str, nonce: str, port: int) -> str:
        """The proof that we know the token with this label; empty if we do not."""
        for digest in [*self._tokens, *self.members.digests(), *self.people.digests()]:
            if token_label(digest) == label:
                return server_code(digest, nonce, port)
        return ""

    # --- making them ------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        role: str,
        *,
        after_job: int = 0,
        person: str = "",
        valid_s: float | None = None,
    ) -> str:
        """A new token; it can be read only now.

        Jobs up to the number `after_job` are not its holder's, whatever their name: that of a
        revoked token may be given again, to somebody else. `person`: whose it is; one with the name
        of a person is theirs.
        """
        if role not in ROLES:
            raise InputError(f"role {role!r}: there are {', '.join(ROLES)}")
        if not TOKEN_NAME.fullmatch(name):
            raise InputError(
                f"token name {name!r}: use up to 64 letters, digits, '.', '_', '@' and '-'"
            )
        if name in self.people.reserved:
            raise InputError(f"token name {name!r}: it is that of whoever runs the daemon")
        return self._make(name, role, after_job=after_job, person=person, valid_s=valid_s)

    def _make(
        self,
        name: str,
        role: str,
        *,
        after_job: int = 0,
        person: str = "",
        valid_s: float | None = None,
    ) -> str:
        token = _PREFIX + secrets.token_urlsafe(32)
        until = None if valid_s is None else self._clock() + valid_s
        with self._lock:
            person = self._holder(name, role, person)
            self._refuse_taken(name)
            self._store.save_token(
                StoredToken(name, role, token_digest(token), after_job, person, until)
            )
            self._load()
        return token

    def _holder(self, name: str, role: str, person: str) -> str:
        """The person whose token it will be; empty: nobody."""
        namesake = self.people.find(name)
        if not person and namesake is None:
            return ""
        found = self.people.known(person) if person else namesake
        assert found is not None  # noqa: S101 - one of both is there
        if namesake is not None and namesake is not found:
            raise InputError(
                f"token name {name!r} is that of a person: use another, such as {person}-laptop"
            )
        if role == AGENT:
            raise InputError(
                f"token {name!r}: agents are no people: use another name than that of a person"
            )
        if lesser(role, found.role) != role:
            raise InputError(
                f"role {role!r}: {found.name} is {found.role}: a token cannot be more than that"
            )
        return found.name

    def add_person(self, new: NewPerson, *, after_job: int) -> Person:
        """Add somebody; the token of their name, if there is one, is theirs from now on."""
        with self._lock:
            token = next((each for each in self._tokens.values() if each.name == new.name), None)
            if (token is not None and token.role == AGENT) or self.members.has(new.name):
                raise InputError(f"name {new.name!r} is that of a machine: use another")
            if token is not None and token.person:
                raise InputError(f"name {new.name!r} is that of a token of {token.person!r}")
            person = self.people.add(new, after_job=token.after_job if token else after_job)
            if token is not None:
                self._store.save_token(msgspec.structs.replace(token, person=new.name))
                self._load()
        return person

    def has(self, name: str) -> bool:
        """Is there a token or a person of this name?"""
        return self._is_known(name) or self.people.find(name) is not None

    def _refuse_taken(self, name: str) -> None:
        if self._is_known(name):
            raise InputError(f"token name {name!r} is taken: revoke it first, or use another")

    def _is_known(self, name: str) -> bool:
        return self.members.has(name) or any(each.name == name for each in self._tokens.values())

    def invite(self, node: str, valid_s: float) -> JoinCode:
        """A code with which a machine may join once, as this node."""
        with self._lock:
            self._refuse_taken(node)
            if self.people.find(node) is not None:
                raise InputError(f"node {node!r} has the name of a person: use another")
            owner = self._speaks_for.get(node, "")
            if owner and self.has(owner):
                raise ConflictError(_belongs(node, owner))
        return self.members.invite(node, valid_s)

    def join(self, secret: str, node: str, csr: str = "") -> Membership:
        """Exchange a code for the node's own credential; nobody else can speak for it then."""
        joined = self.members.join(secret, node, csr)
        with self._lock:
            self._store.bind_nodes([node], node)
            self._speaks_for[node] = node
        return joined

    def claim(self, nodes: Sequence[str], name: str) -> str:
        """Let the token of this name speak for nodes; why it may not, empty if it may.

        The first one that does keeps a node, also while it is lost: another token could take it
        over, and with it the jobs and secrets that are meant for it.
        """
        with self._lock:
            joined = self.members.has(name)
            for node in nodes:
                if joined and node != name:
                    return f"this credential is for node {name!r} only: node {node!r} has to join"
                if self.invited_only and not joined:
                    return (
                        f"node {node!r} was not invited: let it join with a code of "
                        f"`rota token join {node}`"
                    )
                owner = self._speaks_for.get(node, name)
                if owner != name and self.has(owner):
                    return _belongs(node, owner)
            new = [node for node in nodes if self._speaks_for.get(node) != name]
            if new:
                self._store.bind_nodes(new, name)
                self._speaks_for.update(dict.fromkeys(new, name))
        return ""

    def release(self, node: str) -> None:
        """A node was removed: any token may speak for it."""
        with self._lock:
            if node in self._speaks_for:
                self._unbind(node)

    def _unbind(self, node: str) -> None:
        self._store.bind_nodes([node], "")
        del self._speaks_for[node]

    def all(self) -> list[TokenInfo]:
        """Names and roles."""
        found = {name: TokenInfo(name, AGENT) for name in self.members.names()}
        for each in self._tokens.values():
            found[each.name] = TokenInfo(each.name, each.role, each.person, each.until_unix)
        return [found[name] for name in sorted(found)]

    def revoke(self, name: str) -> None:
        """Make it worthless."""
        with self._lock:
            dropped, expelled = self._store.drop_token(name), self.members.expel(name)
            if not dropped and not expelled:
                raise NotFoundError(f"there is no token {name!r}: see `rota token ls`")
            self._load()
            for node in [node for node, owner in self._speaks_for.items() if owner == name]:
                self._unbind(node)

    def local_file(self, path: Path, owner: Actor) -> None:
        """A token in a file that only its owner can read; made anew if it is worth nothing."""
        token = path.read_text("utf-8").strip() if path.exists() else ""
        known = self._tokens.get(token_digest(token))
        if known is not None and self.authenticate(token) is not None:
            self._rename(known, owner)
            return
        with self._lock:
            self._store.drop_token(owner.name)
            self._load()
        token = self._make(owner.name, owner.role, after_job=owner.after_job)
        replace_file(path, f"{token}\n".encode(), private=True)

    def _rename(self, token: StoredToken, owner: Actor) -> None:
        """The same token by another name: copies of the file stay worth what they were."""
        if token.name != owner.name and not token.person:
            renamed = msgspec.structs.replace(token, name=owner.name, after_job=owner.after_job)
            with self._lock:
                self._store.drop_token(token.name)  # a digest has one name
                self._store.save_token(renamed)
                self._load()


def _belongs(node: str, owner: str) -> str:
    return (
        f"node {node!r} belongs to the token {owner!r}: use that one, or let an operator remove "
        f"the node first (`rota nodes rm {node}`)"
    )
