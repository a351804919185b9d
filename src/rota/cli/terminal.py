"""This terminal, and a channel of a job at its other end."""

import contextlib
import os
import secrets
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rota.core.errors import ConflictError, NotFoundError, RotaError
from rota.wire import CHANNEL_WAIT_S, MAIN

if TYPE_CHECKING:
    from rota.sdk import Client

PIECE = 1 << 16
REPLAYED = -(1 << 14)  # bytes that are shown of a terminal when somebody comes back to it
INPUT, OUTPUT = 0, 1
LOST = 255  # the exit code of ssh, too
LET_GO_S = 1.0


def is_terminal() -> bool:
    """Do input and output belong to a terminal?"""
    return os.isatty(INPUT) and os.isatty(OUTPUT)


def terminal_size() -> tuple[int, int]:
    """Rows and columns, as the terminal itself says: variables would not follow it."""
    size = os.get_terminal_size(OUTPUT)
    return size.lines, size.columns


class DetachKeys:
    """Finds Enter ~ . in what somebody types, as ssh does; Enter ~ ~ is a ~."""

    def __init__(self) -> None:
        self.detached = False
        self._fresh = True  # at the beginning of a line
        self._tilde = False

    def passed(self, data: bytes) -> bytes:
        """What is meant for the other end."""
        out = bytearray()
        for byte in data:
            if self._tilde:
                self._tilde = False
                if byte == ord("."):
                    self.detached = True
                    return bytes(out)
                if byte != ord("~"):
                    out.append(ord("~"))
                out.append(byte)
            elif self._fresh and byte == ord("~"):
                self._tilde = True
                continue
            else:
                out.append(byte)
            self._fresh = byte in b"\r\n"
        return bytes(out)


class Attached:
    """Carries what is typed here to a channel, and what comes from there to the screen."""

    def __init__(
        self, rota: "Client", job: str, channel: str, *, rank: int, on_tty: bool, stdin: bool
    ) -> None:
        self._rota = rota
        self._other = rota.another()  # for the thread that types
        self._job = job
        self._channel = channel
        self._rank = rank
        self._tty = on_tty
        self._stdin = stdin
        self._keys = DetachKeys() if on_tty else None
        self._sent = 0
        self._writer = secrets.token_hex(8)
        self._over = threading.Event()
        self._typing = threading.Thread(target=self._type, name="rota-typing", daemon=True)
        self._woken, self._wake = os.pipe()

    def run(self) -> int | None:
        """Until the command has ended; its exit code, None: it goes on without us."""
        from rota.sdk.inside import ERR, ChannelOutput

        output = ChannelOutput(REPLAYED if self._channel == MAIN else 0)
        with self._raw(), self._resized():
            self._typing.start()
            while output.code is None and not self._over.is_set():
                try:
                    answer = self._rota.read_channel(
                        self._job, self._channel, offset=output.offset, wait_s=CHANNEL_WAIT_S,
                        node_rank=self._rank,
                    )  # fmt: skip
                except (NotFoundError, ConflictError):  # its run is over
                    return LOST
                for stream, piece in output.take(answer):
                    _write(2 if stream == ERR else 1, piece)
        if output.code is not None:
            with contextlib.suppress(RotaError):
                self._rota.close_channel(self._job, self._channel, node_rank=self._rank)
        return output.code

    def close(self) -> None:
        """Let everything go; the command goes on if it has not ended."""
        self._over.set()
        os.write(self._wake, b"\0")
        if self._typing.ident is not None:
            self._typing.join(LET_GO_S)  # it may wait for an answer
        self._other.close()

    def _type(self) -> None:
        """What is typed, and the size of this terminal when it changes."""
        eof = not self._stdin
        try:
            if eof or self._tty:
                self._send(b"", eof=eof and not self._tty)
            while not self._over.is_set():
                ready, _, _ = select.select([self._woken, *([] if eof else [INPUT])], [], [])
                if self._over.is_set():
                    return
                if self._woken in ready:
                    os.read(self._woken, PIECE)
                    self._send(b"")
                if INPUT in ready:
                    data = os.read(INPUT, PIECE)
                    eof = not data
                    if self._keys is not None:
                        data = self._keys.passed(data)
                    self._send(data, eof=eof)
                    if self._keys is not None and self._keys.detached:
                        self._over.set()
                        os.kill(os.getpid(), signal.SIGUSR1)  # the other thread waits for output
                        return
        except (RotaError, OSError):  # the other thread will see it, too
            return

    def _send(self, data: bytes, *, eof: bool = False) -> None:
        size = terminal_size() if self._tty else (0, 0)
        self._sent = self._other.write_channel(
            self._job, self._channel, data, offset=self._sent, eof=eof, size=size,
            writer=self._writer, node_rank=self._rank,
        )  # fmt: skip

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        """What is typed goes to the other end, Ctrl-C too."""
        if not self._tty:
            yield
            return
        before = termios.tcgetattr(INPUT)
        try:
            tty.setraw(INPUT, termios.TCSADRAIN)  # what was typed early is not lost
            yield
        finally:
            termios.tcsetattr(INPUT, termios.TCSADRAIN, before)

    @contextlib.contextmanager
    def _resized(self) -> Iterator[None]:
        if not self._tty:
            yield
            return

        def leave(*_: object) -> None:
            raise _DetachedError

        before = signal.signal(signal.SIGWINCH, lambda *_: os.write(self._wake, b"\0"))
        also = signal.signal(signal.SIGUSR1, leave)
        try:
            with contextlib.suppress(_DetachedError):
                yield
        finally:
            signal.signal(signal.SIGWINCH, before)
            signal.signal(signal.SIGUSR1, also)


class _DetachedError(Exception):
    """Whoever sits here leaves; the command goes on."""


def _write(fd: int, data: bytes) -> None:
    stream = sys.stderr if fd == 2 else sys.stdout  # noqa: PLR2004 - the standard number
    stream.buffer.write(data)
    stream.buffer.flush()


def say(text: str) -> None:
    """To whoever sits here."""
    click.echo(text, err=True)
