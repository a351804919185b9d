"""Ways into the runs of this machine: their shims keep them, and this is how they are reached."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rota.live.agent import processes, shim
from rota.live.agent.folders import AgentFolder, read_record
from rota.live.agent.messages import PartKey
from rota.live.calls import (
    MAIN,
    PIECE,
    CallAnswer,
    CloseChannel,
    ListChannels,
    OpenChannel,
    OpenedChannel,
    ReadChannel,
    RunCall,
    WriteChannel,
    conflict,
    missing,
)

MOST_CHANNELS = 64  # of one part
OPEN_S = 30.0  # for a shim to open one
ANSWER_S = 30.0  # for an answer that need not wait
SOON_S = 0.005
LONGEST_HEAD = 1 << 16


class Channels:
    """Opens and uses the channels of all parts of an agent; all its state is in their folders."""

    def __init__(self, root: AgentFolder, boot: str) -> None:
        self._root = root
        self._boot = boot

    def answer(self, run: str, node_rank: int, call: RunCall) -> CallAnswer:
        """Do what is asked of a part; errors are part of the answer."""
        folder = self._root.folder(PartKey(run, node_rank))
        if not folder.is_dir():
            return missing("nothing of it runs here any more")
        try:
            if isinstance(call, OpenChannel):
                return self._open(folder, call)
            if isinstance(call, ListChannels):
                return CallAnswer(channels=tuple(self._list(folder)))
            return _use(folder, call)
        except (OSError, ValueError) as error:
            return conflict(f"it cannot be reached: {error}")

    def _open(self, folder: Path, call: OpenChannel) -> CallAnswer:
        place = folder / shim.CHANNELS
        if not place.is_dir():
            return conflict("its run was started by an older version: it has no way in")
        if call.channel == MAIN and not read_record(folder, "order.json").get("terminal"):
            return conflict("it has no terminal of its own: use `rota exec`")
        if (place / f"{call.channel}.end").exists():
            return missing(f"channel {call.channel} is over")
        if not (place / f"{call.channel}.sock").exists() and call.channel != MAIN:
            if len(list(place.glob("*.sock"))) >= MOST_CHANNELS:
                return CallAnswer(
                    error=f"{MOST_CHANNELS} channels into it are open: close some", wrong="busy"
                )
            wanted: dict[str, Any] = {"argv": call.argv, "tty": call.tty, "env": dict(call.env)}
            wanted |= {"rows": call.rows, "cols": call.cols}
            if call.port:
                wanted["port"] = call.port
            shim.write_whole(str(place / f"{call.channel}.json"), json.dumps(wanted))
        return self._opened(folder, place / call.channel)

    def _opened(self, folder: Path, path: Path) -> CallAnswer:
        """Wait until its shim has opened it."""
        until_s = time.monotonic() + OPEN_S
        pidfd = processes.open_process(read_record(folder, "identity.json"), self._boot)
        if pidfd < 0:
            return conflict("it does not run at the moment")
        try:
            processes.nudge(pidfd)
            while time.monotonic() < until_s:
                if any(path.with_name(f"{path.name}{end}").exists() for end in (".sock", ".end")):
                    return CallAnswer()
                if processes.has_ended(pidfd) or (folder / "exit.json").exists():
                    return conflict("it has just ended")
                time.sleep(SOON_S)
        finally:
            os.close(pidfd)
        with contextlib.suppress(OSError):
            path.with_name(f"{path.name}.json").unlink()
        return conflict("its shim does not open a channel: try again")

    def _list(self, folder: Path) -> list[OpenedChannel]:
        found = []
        for path in sorted((folder / shim.CHANNELS).glob("*.sock")):
            with contextlib.suppress(OSError, ValueError):
                state, _ = _talk(folder, path.stem, {"do": "state"})
                kind, tty = str(state.get("kind", "")), bool(state.get("tty"))
                if state.get("code") is None:
                    found.append(OpenedChannel(path.stem, kind, tty))
        return found


def _use(folder: Path, call: ReadChannel | WriteChannel | CloseChannel) -> CallAnswer:
    match call:
        case ReadChannel(channel, offset, limit, wait_s):
            said = {"do": "read", "offset": offset, "limit": limit, "wait": wait_s}
            return _ask(folder, channel, said)
        case WriteChannel(channel, offset, data, eof, rows, cols, wait_s, writer):
            said = {"do": "write", "offset": offset, "eof": eof, "wait": wait_s}
            said |= {"rows": rows, "cols": cols, "writer": writer}
            return _ask(folder, channel, said, data[:PIECE])
        case CloseChannel(channel):
            return _ask(folder, channel, {"do": "close"})


def _ask(folder: Path, channel: str, call: Mapping[str, Any], body: bytes = b"") -> CallAnswer:
    try:
        state, data = _talk(folder, channel, call, body)
    except (FileNotFoundError, ConnectionRefusedError):
        over = (folder / shim.CHANNELS / f"{channel}.end").exists()
        return missing(f"channel {channel} is over" if over else f"there is no channel {channel}")
    if state.get("wrong"):
        return conflict(str(state["wrong"]))
    return CallAnswer(data, int(state["offset"]), int(state["taken"]))


def _talk(
    folder: Path, channel: str, call: Mapping[str, Any], body: bytes = b""
) -> tuple[dict[str, Any], bytes]:
    """One call at the socket of a channel."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    with (
        shim.opened(str(folder / shim.CHANNELS), flags) as place,  # its address must be short
        socket.socket(socket.AF_UNIX) as line,
    ):
        line.settimeout(ANSWER_S + float(call.get("wait", 0.0)))
        line.connect(f"/proc/self/fd/{place}/{channel}.sock")
        line.sendall(json.dumps({**call, "size": len(body)}).encode() + b"\n" + body)
        text = b""
        while b"\n" not in text and len(text) < LONGEST_HEAD:
            text += _some(line)
        head, _, data = text.partition(b"\n")
        state = json.loads(head)
        while len(data) < int(state["size"]):
            data += _some(line)
    return state, data


def _some(line: socket.socket) -> bytes:
    data = line.recv(PIECE)
    if not data:
        raise ConnectionResetError("it broke off")
    return data
