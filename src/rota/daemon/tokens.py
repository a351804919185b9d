"""Bearer tokens, of which only the digests are kept."""

import os
import secrets
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock

from rota.core.errors import InputError, NotFoundError
from rota.daemon.store import Store
from rota.wire import ADMIN, ROLES, TOKEN_NAME, Actor

_PREFIX = "rota_"


class Tokens:
    """Tokens are 256 random bits, so a plain digest is as good as a slow one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._load()

        self._speaks_for = store.node_tokens()  # node -> name of the token

    def _load(self) -> None:
        self._actors = {digest: Actor(name, role) for name, role, digest in self._store.tokens()}

    def authenticate(self, token: str) -> Actor | None:
        """Whose token is it?"""
        return self._actors.get(_digest(token))

    def create(self, name: str, role: str) -> str:
        """A new token; it can be read only now."""
        if role not in ROLES:
            raise InputError(f"role {role!r}: there are {', '.join(ROLES)}")
        if not TOKEN_NAME.fullmatch(name):
            raise InputError(
                f"token name {name!r}: use up to 64 letters, digits, '.', '_', '@' and '-'"
            )
        token = _PREFIX + secrets.token_urlsafe(32)
        with self._lock:
            if any(actor.name == name for actor in self._actors.values()):
                raise InputError(f"token name {name!r} is taken: revoke it first, or use another")
            self._store.save_token(name, role, _digest(token))
            self._load()
        return token

    def claim(self, nodes: Sequence[str], name: str) -> str:
        """Let the token of this name speak for nodes; why it may not, empty if it may.

        The first one that does keeps a node, also while it is lost: another token could take it
        over, and with it the jobs and secrets that are meant for it.
        """
        with self._lock:
            for node in nodes:
                owner = self._speaks_for.get(node, name)
                if owner != name and any(actor.name == owner for actor in self._actors.values()):
                    return (
                        f"node {node!r} belongs to the token {owner!r}: use that one, or let an "
                        f"operator remove the node first (`rota nodes rm {node}`)"
                    )
            new = [node for node in nodes if self._speaks_for.get(node) != name]
            if new:
                self._store.bind_nodes(new, name)
                self._speaks_for.update(dict.fromkeys(new, name))
        return ""

    def release(self, node: str) -> None:
        """A node was removed: any token may speak for it."""
        with self._lock:
            if node in self._speaks_for:
                self._store.bind_nodes([node], "")
                del self._speaks_for[node]

    def all(self) -> list[Actor]:
        """Names and roles."""
        return sorted(self._actors.values(), key=lambda actor: actor.name)

    def revoke(self, name: str) -> None:
        """Make it worthless."""
        with self._lock:
            if not self._store.drop_token(name):
                raise NotFoundError(f"there is no token {name!r}: see `rota token ls`")
            self._load()

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


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
