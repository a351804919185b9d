"""Bearer tokens, of which only the digests are kept."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from rota.core.errors import ConflictError, InputError, NotFoundError
from rota.core.membership import Membership
from rota.core.proof import server_code, token_digest, token_label
from rota.daemon.members import Members
from rota.daemon.store import Store
from rota.live.agent.identity import JoinCode
from rota.wire import ADMIN, AGENT, ROLES, TOKEN_NAME, Actor

_PREFIX = "rota_"


class Tokens:
    """Tokens are 256 random bits, so a plain digest is as good as a slow one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._load()
        self.members = Members(store)
        self.invited_only = False  # an agent's token is not enough: machines have to join
        self._speaks_for = store.node_tokens()  # node -> name of the token

    def _load(self) -> None:
        self._actors = {digest: actor for actor, digest in self._store.tokens()}

    def authenticate(self, token: str) -> Actor | None:
        """Whose token is it?"""
        digest = token_digest(token)
        return self._actors.get(digest) or self.members.recognise(digest)

    def prove(self, label: str, nonce: str, port: int) -> str:
        """The proof that we know the token with this label; empty if we do not."""
        for digest in [*self._actors, *self.members.digests()]:
            if token_label(digest) == label:
                return server_code(digest, nonce, port)
        return ""

    def create(self, name: str, role: str, *, after_job: int = 0) -> str:
        """A new token; it can be read only now.

        Jobs up to the number `after_job` are not its holder's, whatever their name: that of a
        revoked token may be given again, to somebody else.
        """
        if role not in ROLES:
            raise InputError(f"role {role!r}: there are {', '.join(ROLES)}")
        if not TOKEN_NAME.fullmatch(name):
            raise InputError(
                f"token name {name!r}: use up to 64 letters, digits, '.', '_', '@' and '-'"
            )
        token = _PREFIX + secrets.token_urlsafe(32)
        with self._lock:
            self._refuse_taken(name)
            self._store.save_token(Actor(name, role, after_job), token_digest(token))
            self._load()
        return token

    def _refuse_taken(self, name: str) -> None:
        if self._is_known(name):
            raise InputError(f"token name {name!r} is taken: revoke it first, or use another")

    def _is_known(self, name: str) -> bool:
        return self.members.has(name) or any(actor.name == name for actor in self._actors.values())

    def invite(self, node: str, valid_s: float) -> JoinCode:
        """A code with which a machine may join once, as this node."""
        with self._lock:
            self._refuse_taken(node)
            owner = self._speaks_for.get(node, "")
            if owner and self._is_known(owner):
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
                if owner != name and self._is_known(owner):
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

    def all(self) -> list[Actor]:
        """Names and roles."""
        joined = {name: Actor(name, AGENT) for name in self.members.names()}
        found = joined | {actor.name: actor for actor in self._actors.values()}
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

    def local_file(self, path: Path, name: str, role: str = ADMIN) -> None:
        """A token in a file that only its owner can read; made anew if it is worth nothing."""
        if path.exists() and self.authenticate(path.read_text("utf-8").strip()) is not None:
            return
        with self._lock:
            self._store.drop_token(name)
            self._load()
        token = self.create(name, role)
        part = path.with_name(path.name + ".part")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(token + "\n")
        part.replace(path)


def _belongs(node: str, owner: str) -> str:
    return (
        f"node {node!r} belongs to the token {owner!r}: use that one, or let an operator remove "
        f"the node first (`rota nodes rm {node}`)"
    )
