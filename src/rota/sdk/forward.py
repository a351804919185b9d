"""Ports of jobs on this machine."""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rota.core.errors import RotaError, UnavailableError
from rota.sdk.client import Client
from rota.sdk.inside import ChannelOutput, new_channel_id
from rota.wire import CHANNEL_BYTES, CHANNEL_WAIT_S, ERR

BACKLOG = 64


class PortForward:
    """A port of this machine that leads to a port of a job; `port` says which one was taken.

    Connections are to 127.0.0.1 there, as the job itself would make them. Used with `with`, or
    until `close`. `on_error` is told why a connection was not made. It works in threads of its own,
    with clients of their own.
    """

    def __init__(
        self,
        client: Client,
        job: str,
        remote: int,
        local: int = 0,
        *,
        address: str = "127.0.0.1",
        node_rank: int = 0,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._job = job
        self._remote = remote
        self._rank = node_rank
        self._on_error = on_error
        self._open: set[socket.socket] = set()
        self._closed = False
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._door = socket.create_server((address, local), family=family, backlog=BACKLOG)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {address}:{local} ({error.strerror}): choose another port, such "
                f"as {local + 1 or 8889}:{remote}"
            ) from error
        self.port: int = self._door.getsockname()[1]
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name="rota-forward", daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._closed:
            try:
                line, _ = self._door.accept()
            except OSError:
                return
            self._open.add(line)
            self._start(self._serve, line)

    def _serve(self, line: socket.socket) -> None:
        """One connection, from here to the job and back."""
        channel = new_channel_id()
        try:
            with self._client.another() as client:
                client.open_channel(self._job, id=channel, port=self._remote, node_rank=self._rank)
                sending = self._start(self._send, line, channel)
                self._receive(client, line, channel)
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)  # the other thread may wait for it
                sending.join()
                with contextlib.suppress(RotaError):
                    client.close_channel(self._job, channel, node_rank=self._rank)
        except RotaError as error:
            self._on_error(str(error))
        finally:
            self._open.discard(line)
            line.close()

    def _receive(self, client: Client, line: socket.socket, channel: str) -> None:
        output = ChannelOutput()
        while output.code is None and not self._closed:
            answer = client.read_channel(
                self._job, channel, offset=output.offset, wait_s=CHANNEL_WAIT_S,
                node_rank=self._rank,
            )  # fmt: skip
            for stream, piece in output.take(answer):
                if stream == ERR:
                    self._on_error(piece.decode(errors="replace").strip())
                    continue
                try:
                    line.sendall(piece)
                except OSError:  # whoever called is gone
                    return

    def _send(self, line: socket.socket, channel: str) -> None:
        sent = 0
        # when it is over the other thread sees that, too
        with contextlib.suppress(RotaError), self._client.another() as client:
            while not self._closed:
                try:
                    data = line.recv(CHANNEL_BYTES)
                except OSError:
                    data = b""
                sent = client.write_channel(
                    self._job, channel, data, offset=sent, eof=not data, node_rank=self._rank
                )
                if not data:
                    return

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        self._closed = True
        self._door.close()
        for line in list(self._open):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
