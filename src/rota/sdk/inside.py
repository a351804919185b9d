"""Into jobs that run: what comes out of a channel."""

import uuid

import msgspec

from rota.wire import CHANNEL_HEAD, ENDED_WITH, ERR, OUT


class ExecResult(msgspec.Struct, frozen=True):
    """How a command in a job ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes


class ChannelOutput:
    """Output of a channel, piece by piece. `offset` is where to go on, `code` the exit code."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.code: int | None = None

    def take(self, answer: tuple[int, bytes]) -> list[tuple[int, bytes]]:
        """What an answer of `read_channel` says: (OUT or ERR, bytes)."""
        self.offset, data = answer
        found, at = [], 0
        while at + CHANNEL_HEAD <= len(data):
            size = int.from_bytes(data[at + 1 : at + CHANNEL_HEAD], "big")
            stream, at = data[at], at + CHANNEL_HEAD
            piece, at = data[at : at + size], at + size
            if stream == ENDED_WITH:
                self.code = int(msgspec.json.decode(piece)["code"])
            else:
                found.append((stream, piece))
        return found


def new_channel_id() -> str:
    """A name that no other channel has."""
    return uuid.uuid4().hex


__all__ = ["ERR", "OUT", "ChannelOutput", "ExecResult", "new_channel_id"]
