"""Machines that were invited: a code is exchanged once for a credential that is good for one node.

Of codes, tokens and certificates only the digests are kept.
"""

import secrets
import time
from collections.abc import Callable
from threading import Lock

import msgspec
import sqlalchemy as sa

from rota.core.errors import ConflictError, ForbiddenError, InputError
from rota.core.membership import Membership
from rota.core.proof import token_digest
from rota.daemon import tables
from rota.daemon.authority import Authority
from rota.daemon.store import Store
from rota.live.agent.identity import JoinCode, pin_of
from rota.live.agent.messages import NODE_NAME
from rota.wire import AGENT, TOKEN_NAME, Actor

_PREFIX = "rota_"


class _Member(msgspec.Struct, frozen=True):
    node: str
    until_unix: float | None  # None: until it is revoked


class _Issued(msgspec.Struct, frozen=True):
    """A new credential: what is remembered of it, and what the machine gets."""

    digest: str
    member: _Member
    membership: Membership


class Members:
    """Invitations, and the credentials of those who came. `clock`: Unix seconds."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self.authority: Authority | None = None  # None: members get tokens
        with store.reading() as connection:
            self._members = {
                str(digest): _Member(str(node), until)
                for digest, node, until in connection.execute(sa.select(tables.members))
            }

    # --- who it is --------------------------------------------------------------------------------

    def recognise(self, digest: str) -> Actor | None:
        """Whose token or certificate has this SHA-256?"""
        found = self._members.get(digest)
        if found is None or (found.until_unix is not None and found.until_unix <= self._clock()):
            return None
        return Actor(found.node, AGENT)

    def has(self, node: str) -> bool:
        """Did a machine join under this name?"""
        return any(member.node == node for member in self._members.values())

    def names(self) -> set[str]:
        """Of all nodes that joined."""
        return {member.node for member in self._members.values()}

    def digests(self) -> list[str]:
        """Of all credentials."""
        return list(self._members)

    # --- joining ----------------------------------------------------------------------------------

    def invite(self, node: str, valid_s: float) -> JoinCode:
        """A code with which one machine may join once, under this name; earlier ones are void."""
        if not NODE_NAME.fullmatch(node) or not TOKEN_NAME.fullmatch(node):
            raise InputError(f"node {node!r}: use up to 64 letters, digits, '.', '_' and '-'")
        secret = secrets.token_urlsafe(24)
        table, now = tables.invitations, self._clock()
        with self._lock, self._store.writing() as connection:
            connection.execute(
                sa.delete(table).where((table.c.node == node) | (table.c.until_unix <= now))
            )
            connection.execute(
                table.insert().values(
                    digest=token_digest(secret), node=node, until_unix=now + valid_s
                )
            )
        pin = pin_of(self.authority.fingerprint) if self.authority is not None else ""
        return JoinCode(secret, pin)

    def join(self, secret: str, node: str, csr: str = "") -> Membership:
        """Exchange a code for the credential of its node.

        Raises:
            ForbiddenError: The code is not known, was used, is too old, or is for another node.
        """
        if self.authority is not None and not csr:
            raise ForbiddenError("machines join with a certificate here: use `rota agent --join`")
        digest, table = token_digest(secret), tables.invitations
        with self._lock:
            with self._store.reading() as connection:
                found = connection.execute(
                    sa.select(table.c.node, table.c.until_unix).where(table.c.digest == digest)
                ).first()
            if found is None or found[1] <= self._clock() or found[0] != node:
                raise ForbiddenError(
                    f"the code is not good for node {node!r}: it was used, is too old, or is for "
                    f"another node: ask for a new one (`rota token join {node[:64]}`)"
                )
            issued = self._issue(node, csr)
            with self._store.writing() as connection:
                gone = connection.execute(sa.delete(table).where(table.c.digest == digest))
                if not gone.rowcount:
                    raise ConflictError("the code was used at the same time: ask for a new one")
                self._admit(connection, issued)
            self._members[issued.digest] = issued.member
        return issued.membership

    def renew(self, node: str, csr: str) -> Membership:
        """Another certificate for a member; the one that it has stays good until it expires."""
        if not self.has(node) or self.authority is None:
            raise ForbiddenError(f"node {node!r} has no certificate of this daemon: let it join")
        issued = self._issue(node, csr)
        with self._lock:
            with self._store.writing() as connection:
                self._admit(connection, issued)
            self._members[issued.digest] = issued.member
        return issued.membership

    def _issue(self, node: str, csr: str) -> _Issued:
        if self.authority is not None:
            made = self.authority.certify(csr, node)
            membership = Membership(node, certificate=made.pem, authority=self.authority.pem)
            return _Issued(made.digest, _Member(node, made.until_unix), membership)
        token = _PREFIX + secrets.token_urlsafe(32)
        return _Issued(token_digest(token), _Member(node, None), Membership(node, token=token))

    def _admit(self, connection: sa.Connection, issued: _Issued) -> None:
        table, member = tables.members, issued.member
        connection.execute(sa.delete(table).where(table.c.until_unix <= self._clock()))
        connection.execute(
            table.insert().values(
                digest=issued.digest, node=member.node, until_unix=member.until_unix
            )
        )

    def expel(self, node: str) -> bool:
        """Make all credentials and invitations of a node worthless; False if there were none."""
        with self._lock:
            with self._store.writing() as connection:
                for table in (tables.members, tables.invitations):
                    connection.execute(sa.delete(table).where(table.c.node == node))
            before = len(self._members)
            self._members = {d: m for d, m in self._members.items() if m.node != node}
            return len(self._members) < before
