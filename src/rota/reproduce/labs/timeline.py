"""The timeline of a lab, read from its log and drawn: a lane per node, one per job that waits."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import msgspec
import polars as pl

from rota.core.log import Record
from rota.metrics.history import WAITS, History, read_history


class NodeStay(msgspec.Struct, frozen=True):
    """A job, or a task of one, on a node; `gone_for`: who made it leave."""

    who: str
    node: str
    from_s: float
    until_s: float
    gone_for: str = ""


class QueueStay(msgspec.Struct, frozen=True):
    """A job, or a task of one, in the queue."""

    who: str
    from_s: float
    until_s: float


class LabHistory(msgspec.Struct, frozen=True):
    """What happened on a small cluster; bars and waits are in the order of their beginning."""

    nodes: list[str]
    bars: list[NodeStay]
    waits: list[QueueStay]

    @property
    def end_s(self) -> float:
        """When the last job was over."""
        return max((bar.until_s for bar in self.bars), default=0.0)

    def starts(self) -> dict[str, float]:
        """When who began to run where; those who ran twice on a node have it twice."""
        return {f"{bar.who} on {bar.node}, {bar.from_s:g} s": bar.from_s for bar in self.bars}


def tell(log: pl.DataFrame) -> LabHistory:
    """The story of an event log; every slice of an allocation is a bar of its own."""
    history = read_history(log)
    names = _names(history)
    nodes, places = _places(history)
    bars: list[NodeStay] = []
    waits: list[QueueStay] = []
    for span, actor in enumerate(history.actor.tolist()):
        from_s, until_s = float(history.from_s[span]), float(history.until_s[span])
        if not history.acting[span] or from_s == until_s:
            continue
        if history.state[span] == WAITS:
            waits.append(QueueStay(names[actor], from_s, until_s))
        elif history.held[span] > 0:
            gone_for = _gone_for(history, names, int(history.until_row[span]))
            bars += [
                NodeStay(names[actor], node, from_s, until_s, gone_for)
                for node in places[int(history.allocation[span])]
            ]
    return LabHistory(nodes, sorted(bars, key=_beginning), _joined(waits))


def _beginning(item: NodeStay | QueueStay) -> tuple[float, str]:
    return item.from_s, item.who


def _joined(waits: list[QueueStay]) -> list[QueueStay]:
    """Reasons may change while a job waits: it is one wait."""
    joined: list[QueueStay] = waits[:1]
    for before, wait in pairwise(waits):
        if wait.who == before.who and wait.from_s == before.until_s:
            joined[-1] = msgspec.structs.replace(joined[-1], until_s=wait.until_s)
        else:
            joined.append(wait)
    return sorted(joined, key=_beginning)


def _names(history: History) -> list[str]:
    """Of every actor; tasks are numbered within their job."""
    texts = history.log["text"].gather(history.entry_row[history.owner]).to_list()
    counts: dict[int, int] = {}
    names = []
    for actor, owner in enumerate(history.owner.tolist()):
        if history.is_job[actor]:
            names.append(str(texts[actor]))
        else:
            counts[owner] = counts.get(owner, -1) + 1
            names.append(f"{texts[actor]}#{counts[owner]}")
    return names


def _places(history: History) -> tuple[list[str], Mapping[int, list[str]]]:
    """The nodes of the cluster, and those of every allocation."""
    names, slices = history.nodes.names, history.slices
    places: dict[int, list[str]] = {}
    slots = history.nodes.slots_of(slices.vertex).tolist()
    for number, slot in zip(slices.allocation.tolist(), slots, strict=True):
        places.setdefault(number, []).append(names[slot])
    return names, places


def _gone_for(history: History, names: list[str], row: int) -> str:
    """Who is named by the row at which a span ends, if that is a stop."""
    other = int(history.other[row])
    if history.event[row] != Record.STOP or other < 0:
        return ""
    slot: int = history.actors.tolist().index(other)
    return names[slot]


# --- The picture ----------------------------------------------------------------------------------

WIDTH, LEFT, RIGHT, TOP = 760, 84, 24, 46
NODE_H, NODE_GAP = 34, 18  # above a lane is who has to leave it
WAIT_H, WAIT_GAP = 20, 8
TICKS = (10, 20, 30, 60, 120, 180, 300, 600)
MOST_TICKS = 10
INK, PALE, ALARM = "#222222", "#8a8a8a", "#b3261e"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a3478f", "#7a6a00", "#56626e")
LETTER = 7.0  # about the width of one


def draw(story: LabHistory, title: str) -> str:
    """An SVG that needs nothing else: bars on nodes, hollow bars for waits, a mark for who left."""
    waiting = list(dict.fromkeys(wait.who for wait in story.waits))
    colours = _colours(story)
    scale = (WIDTH - LEFT - RIGHT) / max(story.end_s, 1.0)
    nodes_h = len(story.nodes) * (NODE_H + NODE_GAP)
    waits_y = TOP + nodes_h + 12
    bottom = waits_y + len(waiting) * (WAIT_H + WAIT_GAP) if waiting else TOP + nodes_h
    height = bottom + 34
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 22, title, size=14, weight="bold"),
        *_axis(story.end_s, scale, bottom),
    ]
    for number, node in enumerate(story.nodes):
        y = TOP + number * (NODE_H + NODE_GAP)
        parts.append(_text(LEFT - 8, y + NODE_H / 2 + 4, node, anchor="end"))
        parts.append(_rect(LEFT, y, story.end_s * scale, NODE_H, fill="#f1f1f1"))
        here = [bar for bar in story.bars if bar.node == node]
        parts += [line for bar in here for line in _bar(bar, y, scale, colours[bar.who])]
    for number, who in enumerate(waiting):
        y = waits_y + number * (WAIT_H + WAIT_GAP)
        parts.append(_text(LEFT - 8, y + WAIT_H / 2 + 4, who, anchor="end"))
        here_too = [wait for wait in story.waits if wait.who == who]
        parts += [line for wait in here_too for line in _wait(wait, y, scale, colours[who])]
    return "\n".join([*parts, "</svg>", ""])


def _colours(story: LabHistory) -> dict[str, str]:
    """Tasks of one job have one colour."""
    jobs = list(dict.fromkeys(_job(item.who) for item in _all(story)))
    return {item.who: COLOURS[jobs.index(_job(item.who)) % len(COLOURS)] for item in _all(story)}


def _all(story: LabHistory) -> Sequence[NodeStay | QueueStay]:
    return [*story.bars, *story.waits]


def _job(who: str) -> str:
    return who.partition("#")[0]


def _bar(bar: NodeStay, y: float, scale: float, colour: str) -> list[str]:
    x, width = LEFT + bar.from_s * scale, (bar.until_s - bar.from_s) * scale
    parts = [_rect(x, y, max(width - 1, 1), NODE_H, fill=colour)]
    if width > LETTER * len(bar.who):
        parts.append(_text(x + width / 2, y + NODE_H / 2 + 4, bar.who, "middle", fill="#ffffff"))
    if bar.gone_for:
        end = x + width
        parts.append(
            f'<path d="M{end - 1:.1f} {y - 3} v{NODE_H + 6}" stroke="{ALARM}" stroke-width="3"/>'
        )
        told = f"{bar.who} leaves for {bar.gone_for}"
        parts.append(_text(end + 4, y - 5, told, fill=ALARM, size=11))
    return parts


def _wait(wait: QueueStay, y: float, scale: float, colour: str) -> list[str]:
    x, width = LEFT + wait.from_s * scale, (wait.until_s - wait.from_s) * scale
    box = (
        f'<rect x="{x + 1:.1f}" y="{y}" width="{max(width - 3, 1):.1f}" height="{WAIT_H}" rx="2" '
        f'fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="4 3"/>'
    )
    if width <= LETTER * len("waits"):
        return [box]
    return [box, _text(x + width / 2, y + WAIT_H / 2 + 4, "waits", "middle", fill=colour)]


def _axis(end_s: float, scale: float, bottom: float) -> list[str]:
    step = next((tick for tick in TICKS if end_s / tick <= MOST_TICKS), end_s / MOST_TICKS)
    parts = []
    for number in range(int(end_s / step) + 1):
        x = LEFT + number * step * scale
        parts.append(
            f'<path d="M{x:.1f} {TOP} V{bottom}" stroke="#dddddd" stroke-width="1" fill="none"/>'
        )
        told = f"{number * step:g}" + (" s" if not number else "")
        parts.append(_text(x, bottom + 18, told, "middle", fill=PALE))
    return parts


def _rect(x: float, y: float, width: float, height: float, *, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="2" fill="{fill}"/>'


def _text(
    x: float,
    y: float,
    text: str,
    anchor: str = "start",
    *,
    fill: str = INK,
    size: int = 12,
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
