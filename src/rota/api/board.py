"""The board as a stream: once as a whole, then what has changed, at most twice in a second.

There is one board for all who look. Each reader has no queue, only the number of the last step that
it got: a reader that is slow skips, gets the steps that it missed together, or the whole board if
they are not kept any more. One that does not read at all is hung up on, and may come again.
"""

import asyncio
import base64
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rota.api.limits import in_thread
from rota.core.errors import RotaError
from rota.daemon.access import sees_all_jobs, sees_job
from rota.daemon.board import Board, BoardJob
from rota.daemon.ports import Service
from rota.wire import Actor

BEAT_S = 0.5  # between steps
STEPS = 32  # that are kept for those who missed them
_NOBODY = Actor("", "")


def pack_runs(runs: Iterable[tuple[int, int, int]]) -> str:
    """(first place, how many, owner) in rising order, each as three numbers of variable length.

    Places are told by the gap since the last one, owners by the difference to the last one.
    """
    out = bytearray()
    at = owner = 0
    for first, count, new in runs:
        change = new - owner
        for number in (first - at, count, change << 1 if change >= 0 else -change << 1 | 1):
            rest = number
            while rest >> 7:
                out.append(rest & 0x7F | 0x80)
                rest >>= 7
            out.append(rest)
        at, owner = first + count, new
    return base64.b64encode(out).decode()


def changed_runs(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int, int]]:
    """Places whose owner has changed, those of one owner side by side together."""
    runs: list[tuple[int, int, int]] = []
    end = last = -1
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            if place == end and new == last:
                first, count, _ = runs[-1]
                runs[-1] = (first, count + 1, new)
            else:
                runs.append((place, 1, new))
            end, last = place + 1, new
    return runs


class _BoardStep:
    """From one board to the next, as messages; all who see the same share one."""

    def __init__(self, number: int, before: Board, after: Board) -> None:
        self.number = number
        self._after = after
        self._runs = pack_runs(changed_runs(before.owners, after.owners))
        self._nodes = [
            (place, node)
            for place, (old, node) in enumerate(zip(before.nodes, after.nodes, strict=True))
            if old != node
        ]
        self._shared = {
            place: after.shared.get(place, ())
            for place in before.shared | after.shared
            if before.shared.get(place) != after.shared.get(place)
        }
        self._new = [job for index, job in after.jobs.items() if before.jobs.get(index) != job]
        self._gone = [index for index in before.jobs if index not in after.jobs]
        self._messages: dict[Actor, bytes] = {}

    def message(self, actor: Actor) -> bytes:
        who = _NOBODY if sees_all_jobs(actor) else actor
        known = self._messages.get(who)
        if known is None:
            data = {
                **_now(self._after),
                "runs": self._runs,
                "shared": self._shared,
                "nodes": self._nodes,
                "jobs": _visible(self._new, actor),
                "gone": self._gone,
            }
            known = self._messages[who] = _message("delta", self.number, data)
        return known


class BoardRoom:
    """The board that everybody looks at. Used in one thread (that of the event loop)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._number = int(time.time() * 1_000)  # above those of daemons before this one
        self._board: Board | None = None
        self._steps: deque[_BoardStep] = deque(maxlen=STEPS)
        self._full: dict[Actor, tuple[int, bytes]] = {}
        self._news: asyncio.Event | None = None
        self._pump: asyncio.Task[None] | None = None
        self._readers = 0
        self._trouble: RotaError | None = None

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until there is something after this number; False after the timeout."""
        self._readers += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
            self._news = asyncio.Event()
        try:
            if self._board is not None and self._number > after:
                return True
            if self._news is None:
                self._news = asyncio.Event()
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._readers -= 1
        if self._trouble is not None:
            raise self._trouble
        return True

    def messages(self, after: int, actor: Actor) -> tuple[int, bytes]:
        """What a reader lacks that got everything up to this number; where it is then."""
        if self._board is None:
            return after, b""
        missed = [step for step in self._steps if step.number > after]
        if missed and missed[0].number == after + 1:
            return self._number, b"".join(step.message(actor) for step in missed)
        if after == self._number:
            return after, b""
        return self._number, self._whole(self._board, actor)

    def _whole(self, board: Board, actor: Actor) -> bytes:
        who = _NOBODY if sees_all_jobs(actor) else actor
        number, known = self._full.get(who, (0, b""))
        if number != self._number:
            data = {
                **_now(board),
                "runs": pack_runs(changed_runs([0] * len(board.owners), board.owners)),
                "shared": board.shared,
                "nodes": board.nodes,
                "jobs": _visible(board.jobs.values(), actor),
            }
            known = _message("full", self._number, data)
            if len(self._full) > STEPS:
                self._full.clear()
            self._full[who] = self._number, known
        return known

    async def _run(self) -> None:
        """Look twice in a second, as long as somebody else does."""
        quiet = 0
        while quiet < STEPS:
            quiet = 0 if self._readers else quiet + 1
            seen = -1 if self._board is None else self._board.version
            try:
                board = await in_thread(self._service.board, seen)
            except RotaError as error:
                self._trouble = error
                self._tell()
                return
            self._trouble = None
            if board is not None:
                self._take(board)
            await asyncio.sleep(BEAT_S)

    def _take(self, board: Board) -> None:
        before, self._board = self._board, board
        self._number += 1
        same = before is not None and [(n.name, n.gpus) for n in before.nodes] == [
            (n.name, n.gpus) for n in board.nodes
        ]
        if before is not None and same:
            self._steps.append(_BoardStep(self._number, before, board))
        else:
            self._steps.clear()  # another cluster: whole, for everybody
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        if news is not None:
            news.set()


def _now(board: Board) -> dict[str, Any]:
    return {"now": board.now, "events": board.last_event, "counts": board.counts}


def _visible(jobs: Iterable[BoardJob], actor: Actor) -> list[BoardJob]:
    return [job for job in jobs if sees_job(actor, job.user, job.id)]


def _message(event: str, number: int, data: dict[str, Any]) -> bytes:
    return b"event: %b\nid: %d\ndata: %b\n\n" % (event.encode(), number, msgspec.json.encode(data))
