"""Who may keep a connection: a silent client cannot keep others out.

A connection is *busy* while a request of it is being answered, else *idle*. An idle one has to send
a whole request head within `head_timeout_s`. When there are too many connections (in all, or from
one address), a newcomer takes the place of an idle one: of those that never showed a token first,
of those that have been idle longest first. Connections of agents keep their places: what runs on a
machine depends on them.

Whoever asks and takes nothing of the answer for `stalled_s` is hung up on: its rest would stay in
memory.

With TLS a connection is a guest from its first byte on: one whose handshake does not come to its
end is as idle as any other, and has `handshake_timeout_s`.
"""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import get_remote_addr

from rota.api.auth import CERTIFICATE, HANG_UP, PEER_UID
from rota.api.context import ApiSettings
from rota.wire import AGENT


class Doorkeeper:
    """The connections of a server. Used in one thread (that of the event loop)."""

    def __init__(self, settings: ApiSettings) -> None:
        self.head_timeout_s = settings.head_timeout_s
        self.handshake_timeout_s = settings.handshake_timeout_s
        self.stalled_s = settings.stalled_s
        self.tls: ssl.SSLContext | None = None  # of connections from now on; None: plain text
        self._most = settings.connections
        self._most_each = settings.connections_per_address
        self._guests: dict[GuardedProtocol, None] = {}  # idle longest first
        self._by_address: dict[str, int] = {}
        self.turned_away = 0
        self.hung_up = 0  # on those who did not read

    def enter(self, guest: "GuardedProtocol") -> bool:
        """Let a connection in, if need be in the place of another one."""
        if self._by_address.get(guest.address, 0) >= self._most_each:
            same = (other for other in self._guests if other.address == guest.address)
            if not self._send_away(same):
                return False
        if len(self._guests) >= self._most and not self._send_away(self._guests):
            return False
        self._guests[guest] = None
        self._by_address[guest.address] = self._by_address.get(guest.address, 0) + 1
        return True

    def _send_away(self, guests: Iterable["GuardedProtocol"]) -> bool:
        idle = [guest for guest in guests if not guest.busy and guest.role != AGENT]
        chosen = next((guest for guest in idle if not guest.role), idle[0] if idle else None)
        if chosen is None:
            self.turned_away += 1
            return False
        self.leave(chosen)
        chosen.transport.abort()
        return True

    def rest(self, guest: "GuardedProtocol") -> None:
        """It has got its answer: it is idle from now on."""
        if guest in self._guests:
            del self._guests[guest]
            self._guests[guest] = None

    def leave(self, guest: "GuardedProtocol") -> None:
        """It is gone."""
        if guest in self._guests:
            del self._guests[guest]
            self._by_address[guest.address] -= 1
            if not self._by_address[guest.address]:
                del self._by_address[guest.address]


class GuardedProtocol(H11Protocol):
    """A connection that the doorkeeper of its app has let in."""

    address = ""
    role = ""  # of the last token that it showed

    def __init__(self, config: Any, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        app: Starlette = config.app
        self._door: Doorkeeper = app.state.door
        self._head_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # what came with the end of the handshake

    @property
    def busy(self) -> bool:
        """A request of it is being answered."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Ask the doorkeeper first."""
        self.transport = transport
        client = get_remote_addr(transport)
        self.address = client[0] if client else ""
        line = transport.get_extra_info("socket")
        local = line is not None and line.family == socket.AF_UNIX
        if local:
            uid = _peer_uid(line)
            self.address = f"uid {uid}"
            self.app_state = {**self.app_state, PEER_UID: uid}
        if not self._door.enter(self):
            transport.abort()
        elif local or self._door.tls is None:  # what stays in this machine needs no encryption
            self._begin(transport)
        else:
            transport.pause_reading()
            self._handshake = self.loop.create_task(self._shake_hands(transport, self._door.tls))

    async def _shake_hands(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        try:
            secured = await self.loop.start_tls(
                transport, self, tls, server_side=True,
                ssl_handshake_timeout=self._door.handshake_timeout_s,
            )  # fmt: skip
        except OSError:  # it is no TLS, took too long or does not trust us
            secured = None
        finally:
            self._handshake = None
        if secured is None or secured.is_closing():
            self._door.leave(self)
            transport.abort()
            return
        certificate = secured.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if certificate:
            self.app_state = {**self.app_state, CERTIFICATE: sha256(certificate).hexdigest()}
        self._begin(secured)
        early, self._early = b"".join(self._early), []
        if early:
            self.data_received(early)

    def _begin(self, transport: asyncio.Transport) -> None:
        """Requests may come."""
        self.app_state = {**self.app_state, HANG_UP: transport.abort}
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take what came; what is no whole request head has to become one in time."""
        if self._handshake is not None:
            self._early.append(data)
            return
        if not self.busy and self._head_timer is None:
            self._expect_head()
        super().data_received(data)
        if self.busy:
            self._forget_head()

    def on_response_complete(self) -> None:
        """The request is answered."""
        scope: Any = self.scope  # before the next request, which may be here already, has its own
        if scope.get("actor") is not None:
            self.role = scope["actor"].role
        super().on_response_complete()
        self._door.rest(self)
        if self.busy:  # the next one was here already
            self._forget_head()

    def pause_writing(self) -> None:
        """Much of an answer waits for its reader: look whether there is one."""
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        """Almost all of it was taken."""
        self._forget_reader()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give its place back."""
        self._forget_head()
        self._forget_reader()
        self._door.leave(self)
        if self.scheme is not None:  # else it never began
            super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self._door.head_timeout_s, self._too_late)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _expect_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self._door.stalled_s, self._look_at_reader, left)

    def _forget_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _look_at_reader(self, before: int) -> None:
        """So much was left of the answer when we looked last."""
        if self.transport.get_write_buffer_size() >= before:
            self._reader_timer = None
            self._door.hung_up += 1
            self.transport.abort()
        else:
            self._expect_reader()

    def _too_late(self) -> None:
        self._head_timer = None
        if not self.busy:
            self.transport.abort()


def _peer_uid(line: socket.socket) -> int:
    """Who opened the other end, as the kernel says; -1: nobody whom a uid tells from others.

    Jobs of a daemon that is not root have its own uid, in a sandbox: those are not its owner.
    """
    data = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", data)
    return -1 if uid == os.geteuid() != 0 and not _is_outside(pid) else uid


def _is_outside(pid: int) -> bool:
    """Does a process live among the same processes as we do, and not in a sandbox?"""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False
