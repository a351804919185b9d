"""Runs as films for slides: SVG that moves by itself, GIF, or MP4.

A film shows who has which GPU and how many jobs wait, at equal steps of time. An SVG needs nothing;
a GIF needs Pillow (which matplotlib brings), an MP4 also the program ffmpeg.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rota.core.errors import OutputError, install
from rota.core.words import brief
from rota.metrics.ledger import active_range
from rota.report.data import NO_TENANT, queue, tenant_shares
from rota.report.lanes import gantt, shown_nodes
from rota.report.source import RunView
from rota.report.style import COLOURS, main_tenants, natural, time_ticks
from rota.report.watch import read_runs

if TYPE_CHECKING:
    from PIL import Image

KINDS = (".svg", ".gif", ".mp4")
MOST_CHANGES = 150_000
"""Of an SVG: it has fewer frames rather than more of them."""
WIDTH, MARGIN, BETWEEN, HEAD, CHART, FOOT = 960, 24, 28, 46, 90, 22
_LARGEST, _SMALLEST, _TALLEST = 26, 3, 420
_SEEN = 4  # parts of a GPU that are wider have a line between them
_FREE, _OTHERS = "#e8ecf2", "#9aa5b8"
_SIZES = ("#b9d0ef", "#93b5e6", "#6a97da", "#4478c7", "#2a5aa8", "#173d7d")
_INK, _QUIET, _LINE, _CURSOR = "#171c26", "#586274", "#d8dde6", "#b3261e"


class FilmPart(NamedTuple):
    """A part of a GPU: its number among those of the GPU, and how many these are."""

    gpu: int
    number: int = 0
    among: int = 1

    def box(self, corner: tuple[float, float], side: float) -> tuple[float, float, float]:
        """Where it is in the box of its GPU: from left, from the top, and how wide."""
        left = round(self.number * side / self.among)
        right = round((self.number + 1) * side / self.among)
        between = 1 if self.number + 1 < self.among and side / self.among > _SEEN else 0
        return corner[0] + left, corner[1], max(1.0, right - left - between)


class FilmScene(NamedTuple):
    """One run: colours of its GPUs by frame (numbers into `colours`), and its queue.

    A GPU that jobs share has as many parts as ever share it; fewer jobs have several of them each.
    """

    name: str
    nodes: list[tuple[str, int]]
    colours: list[str]
    parts: list[FilmPart]
    cells: Any  # frames x parts
    waiting: Any  # by frame
    most: float  # that ever waited
    until_s: float


def write_movie(folders: Sequence[Path], to: Path, *, seconds: float = 20.0, fps: int = 12) -> Path:
    """Write a film of one run or two, side by side; the ending of the name says how.

    Raises:
        OutputError: A tool is missing, or the file cannot be written.
    """
    kind = to.suffix.lower()
    _check_tools(kind)
    frames = max(2, round(seconds * fps))
    scenes = film(folders, frames)
    part = to.with_name(f"{to.stem}.part{to.suffix}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if kind == ".svg":
            part.write_text(animated_svg(scenes, seconds), encoding="utf-8")
        elif kind == ".gif":
            _write_gif(scenes, part, fps)
        else:
            _write_mp4(scenes, part, fps)
        part.replace(to)
    except OSError as error:
        part.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise OutputError(f"{to}: cannot be written ({why}): name another with -o") from error
    return to


def _check_tools(kind: str) -> None:
    from importlib.util import find_spec

    if kind != ".svg" and find_spec("PIL") is None:
        raise OutputError(
            f"a film as {kind} needs Pillow: {install('plot')}; an .svg or .html needs nothing"
        )
    if kind == ".mp4" and shutil.which("ffmpeg") is None:
        raise OutputError(
            "a film as .mp4 needs the program ffmpeg: install it (on Debian: apt install ffmpeg), "
            "or name an .svg, .gif or .html"
        )


def film(folders: Sequence[Path], frames: int) -> list[FilmScene]:
    """All runs at the same moments."""
    looks = [source.looks[0] for source in read_runs(folders)]
    origin_s = min(active_range(look.history)[0] for look in looks)
    until_s = max(active_range(look.history)[1] for look in looks)
    times = np.linspace(origin_s, until_s, frames)
    kept = main_tenants([tenant_shares(look.history) for look in looks])
    return [_scene(look, times, kept) for look in looks]


def _scene(look: RunView, times: Any, kept: list[str]) -> FilmScene:
    history = look.history
    bars = gantt(history)
    rows = sorted(shown_nodes(history).iter_rows(), key=lambda row: natural(row[0]))
    nodes = [(str(name), max(1, int(np.ceil(gpus)))) for name, gpus in rows]
    firsts = dict(
        zip((name for name, _ in nodes),
            np.cumsum([0, *(gpus for _, gpus in nodes)])[:-1].tolist(), strict=True)
    )  # fmt: skip
    colours, of_job = _colours(look, kept)
    cells = np.zeros((len(times), sum(gpus for _, gpus in nodes)), dtype=np.uint8)
    numbers = history.actors[history.is_job]
    jobs = np.searchsorted(numbers, bars["job"].to_numpy())
    begins = np.searchsorted(times, bars["start_s"].to_numpy(), side="left")
    ends = np.searchsorted(times, bars["end_s"].to_numpy(), side="left")
    places = zip(bars["node"], bars["lane"].to_list(), bars["lanes"].to_list(), strict=True)
    shared: dict[int, list[SharerBar]] = {}
    for job, begin, end, (node, lane, lanes) in zip(
        jobs.tolist(), begins.tolist(), ends.tolist(), places, strict=True
    ):
        first = firsts[node] + int(lane + 1e-6)
        if lanes > 1 - 1e-6:
            cells[begin:end, first : first + max(1, int(np.ceil(lanes - 1e-6)))] = of_job[job]
        elif begin < end:
            shared.setdefault(first, []).append(SharerBar(lane, begin, end, of_job[job]))
    parts, cells = _with_parts(cells, shared)
    steps = queue(history)
    at = np.searchsorted(steps["time_s"].to_numpy(), times, side="right") - 1
    waiting = np.where(at >= 0, steps["waiting"].to_numpy()[np.maximum(at, 0)], 0.0)
    waiting[times > steps["time_s"][-1]] = 0.0
    most = float(steps["waiting"].to_numpy().max(initial=0.0))
    return FilmScene(
        look.name, nodes, colours, parts, cells, waiting, most, float(times[-1] - times[0])
    )


class SharerBar(NamedTuple):
    """A job has a part of a GPU from one frame to another."""

    lane: float
    begin: int
    end: int
    colour: int


def _with_parts(cells: Any, shared: dict[int, list[SharerBar]]) -> tuple[list[FilmPart], Any]:
    """The columns of all parts of GPUs; `cells` has one for each GPU."""
    parts: list[FilmPart] = []
    columns: list[Any] = []
    for gpu in range(cells.shape[1]):
        spans = list(_sharers(shared.get(gpu, ())))
        count = max((len(colours) for _, _, colours in spans), default=1)
        lines = np.repeat(cells[:, gpu : gpu + 1], count, axis=1)
        for begin, end, colours in spans:
            lines[begin:end] = [colours[part * len(colours) // count] for part in range(count)]
        parts += [FilmPart(gpu, part, count) for part in range(count)]
        columns.append(lines)
    return parts, np.hstack(columns)


def _sharers(bars: Sequence[SharerBar]) -> Iterator[tuple[int, int, list[int]]]:
    """From one frame to another: the colours of all who have a part of the GPU, by their lanes."""
    turns = sorted({frame for bar in bars for frame in (bar.begin, bar.end)})
    ordered = sorted(bars)
    for begin, end in pairwise(turns):
        here = [bar.colour for bar in ordered if bar.begin <= begin and bar.end >= end]
        if here:
            yield begin, end, here


def _colours(look: RunView, kept: list[str]) -> tuple[list[str], list[int]]:
    """Colours (the first is that of free GPUs), and the number of each job's among them."""
    jobs = look.jobs
    if len(kept) > 1:
        number = {name: 1 + i % len(COLOURS) for i, name in enumerate(kept)}
        names = jobs["tenant"].fill_null("").replace("", NO_TENANT)
        return [_FREE, *COLOURS, _OTHERS], [number.get(name, len(COLOURS) + 1) for name in names]
    steps = np.clip(np.ceil(np.log2(np.maximum(jobs["gpus"].to_numpy(), 1.0))), 0, 5).astype(int)
    return [_FREE, *_SIZES], (1 + steps).tolist()


# --- where everything is -------------------------------------------------------------------------


class FilmLayout(NamedTuple):
    """Of one run: boxes of its GPUs (x, y and side), and of its chart."""

    left: float
    wide: float
    boxes: Sequence[tuple[float, float]]
    side: float
    chart_y: float


def layouts(scenes: Sequence[FilmScene]) -> tuple[list[FilmLayout], float]:
    """Runs side by side, and how high the film is."""
    wide = (WIDTH - 2 * MARGIN - BETWEEN * (len(scenes) - 1)) / len(scenes)
    found = [_layout(scene, MARGIN + i * (wide + BETWEEN), wide) for i, scene in enumerate(scenes)]
    bottom = max(one.chart_y for one in found)
    found = [one._replace(chart_y=bottom) for one in found]
    height = bottom + CHART + FOOT + 12
    return found, float(2 * round(height / 2))


def _layout(scene: FilmScene, left: float, wide: float) -> FilmLayout:
    most = max(gpus for _, gpus in scene.nodes)
    across = most if most <= 4 else -(-most // 2) if most <= 16 else int(np.ceil(1.6 * most**0.5))  # noqa: PLR2004 - blocks that are wider than high
    down = -(-most // across)
    size = _LARGEST + 1
    while True:
        size -= 1
        gap = max(3, round(size * 0.45))
        block_w, block_h = across * size + gap, down * size + gap
        columns = max(1, int((wide + gap) // block_w))
        rows = -(-len(scene.nodes) // columns)
        if rows * block_h <= _TALLEST or size <= _SMALLEST:
            break
    boxes = [
        (
            left + number % columns * block_w + gpu % across * size,
            HEAD + number // columns * block_h + gpu // across * size,
        )
        for number, (_, gpus) in enumerate(scene.nodes)
        for gpu in range(gpus)
    ]
    return FilmLayout(left, wide, boxes, size - (2 if size > 11 else 1), HEAD + rows * block_h + 26)  # noqa: PLR2004 - gaps that are seen


# --- SVG -----------------------------------------------------------------------------------------


def animated_svg(scenes: Sequence[FilmScene], seconds: float) -> str:
    """A picture that moves by itself, over and over; without scripts."""
    scenes = _bounded(scenes)
    places, height = layouts(scenes)
    body = "".join(
        _svg_scene(scene, place, seconds, _top(scenes))
        for scene, place in zip(scenes, places, strict=True)
    )
    names = escape(" and ".join(scene.name for scene in scenes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{names}: GPUs in use and '
        f'jobs that wait, over time"><rect width="100%" height="100%" fill="#ffffff"/>{body}'
        "</svg>\n"
    )


def _bounded(scenes: Sequence[FilmScene]) -> list[FilmScene]:
    """With fewer frames where there would be too many changes."""
    while True:
        changes = sum(int((np.diff(scene.cells, axis=0) != 0).sum()) for scene in scenes)
        if changes <= MOST_CHANGES or len(scenes[0].cells) <= 4:  # noqa: PLR2004 - a film
            return list(scenes)
        scenes = [
            scene._replace(cells=scene.cells[::2], waiting=scene.waiting[::2]) for scene in scenes
        ]


def _top(scenes: Sequence[FilmScene]) -> float:
    return max(1.0, *(scene.most for scene in scenes))


def _svg_scene(scene: FilmScene, place: FilmLayout, seconds: float, top: float) -> str:
    frames = len(scene.cells)
    name = escape(scene.name)
    parts = [f'<text x="{place.left:g}" y="27" font-size="17" fill="{_INK}">{name}</text>']
    for column, part in enumerate(scene.parts):
        x, y, wide = part.box(place.boxes[part.gpu], place.side)
        line = scene.cells[:, column]
        at = np.flatnonzero(np.append(True, np.diff(line) != 0))
        colours = [scene.colours[number] for number in line[at].tolist()]
        box = f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{place.side:g}" '
        if len(at) == 1:
            parts.append(f'{box}fill="{colours[0]}"/>')
            continue
        times = ";".join(f"{number / frames:.4g}" for number in at.tolist())
        parts.append(
            f'{box}fill="{colours[0]}"><animate attributeName="fill" calcMode="discrete" '
            f'dur="{seconds:g}s" repeatCount="indefinite" keyTimes="{times}" '
            f'values="{";".join(colours)}"/></rect>'
        )
    return "".join(parts) + _svg_chart(scene, place, seconds, top)


def _svg_chart(scene: FilmScene, place: FilmLayout, seconds: float, top: float) -> str:
    left, wide, floor = place.left, place.wide, place.chart_y + CHART
    xs = np.linspace(left, left + wide, len(scene.waiting))
    ys = floor - scene.waiting / top * CHART
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    times, labels = time_ticks(max(scene.until_s, 1.0), 5)
    ticks = "".join(
        f'<text x="{left + wide * at / scene.until_s:.1f}" y="{floor + 15:g}">{label}</text>'
        for at, label in zip(times, labels, strict=True)
        if at <= scene.until_s * 0.96
    )
    return (
        f'<g font-size="11" fill="{_QUIET}"><text x="{left:g}" y="{place.chart_y - 6:g}">jobs that '
        f"wait (at most {top:,.0f})</text>{ticks}</g>"
        f'<line x1="{left:g}" x2="{left + wide:g}" y1="{floor:g}" y2="{floor:g}" stroke="{_LINE}"/>'
        f'<polygon points="{left:.1f},{floor:.1f} {line} {left + wide:.1f},{floor:.1f}" '
        f'fill="{COLOURS[0]}"/><rect x="{left:g}" y="{place.chart_y:g}" width="2" height="{CHART}" '
        f'fill="{_CURSOR}"><animate attributeName="x" from="{left:g}" to="{left + wide:g}" '
        f'dur="{seconds:g}s" repeatCount="indefinite"/></rect>'
    )


# --- GIF and MP4 ---------------------------------------------------------------------------------


def images(scenes: Sequence[FilmScene]) -> "Iterator[Image.Image]":
    """One frame after the other, drawn by Pillow."""
    from PIL import Image, ImageDraw, ImageFont

    places, height = layouts(scenes)
    top = _top(scenes)
    ground = Image.new("RGB", (WIDTH, int(height)), "#ffffff")
    pen = ImageDraw.Draw(ground)
    large, small = ImageFont.load_default(17), ImageFont.load_default(11)
    for scene, place in zip(scenes, places, strict=True):
        pen.text((place.left, 12), scene.name, fill=_INK, font=large)
        floor = place.chart_y + CHART
        told = f"jobs that wait (at most {top:,.0f})"
        pen.text((place.left, place.chart_y - 18), told, fill=_QUIET, font=small)
        xs = np.linspace(place.left, place.left + place.wide, len(scene.waiting))
        ys = floor - scene.waiting / top * CHART
        outline = [(place.left, floor), *zip(xs.tolist(), ys.tolist(), strict=True)]
        pen.polygon([*outline, (place.left + place.wide, floor)], fill=COLOURS[0])
        times, labels = time_ticks(max(scene.until_s, 1.0), 5)
        for at, label in zip(times, labels, strict=True):
            if at <= scene.until_s * 0.96:
                x = place.left + place.wide * at / scene.until_s
                pen.text((x, floor + 5), label, fill=_QUIET, font=small)
    for number in range(len(scenes[0].cells)):
        image = ground.copy()
        pen = ImageDraw.Draw(image)
        for scene, place in zip(scenes, places, strict=True):
            for part, colour in zip(scene.parts, scene.cells[number].tolist(), strict=True):
                x, y, wide = part.box(place.boxes[part.gpu], place.side)
                box = (x, y, x + wide - 1, y + place.side - 1)
                pen.rectangle(box, fill=scene.colours[colour])
            share = number / max(len(scene.cells) - 1, 1)
            x = place.left + place.wide * share
            pen.rectangle((x, place.chart_y, x + 1, place.chart_y + CHART), fill=_CURSOR)
            clock = brief(round(share * scene.until_s / 60) * 60)
            now = f"{clock}, {scene.waiting[number]:,.0f} wait"
            pen.text((place.left + place.wide, 16), now, fill=_QUIET, font=small, anchor="ra")
        yield image


def _write_gif(scenes: Sequence[FilmScene], to: Path, fps: int) -> None:
    from PIL import Image

    frames = [image.quantize(64, dither=Image.Dither.NONE) for image in images(scenes)]
    frames[0].save(to, save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0)


def _write_mp4(scenes: Sequence[FilmScene], to: Path, fps: int) -> None:
    _, height = layouts(scenes)
    command = [
        str(shutil.which("ffmpeg")), "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt",
        "rgb24", "-s", f"{WIDTH}x{int(height)}", "-r", str(fps), "-i", "-", "-pix_fmt", "yuv420p",
        str(to),
    ]  # fmt: skip
    with subprocess.Popen(  # noqa: S603 - our own arguments
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        if running.stdin is None or running.stderr is None:
            raise OutputError("ffmpeg takes no frames")
        try:
            for image in images(scenes):
                running.stdin.write(image.tobytes())
            running.stdin.close()
        except BrokenPipeError:
            pass  # it tells why
        said = running.stderr.read().decode(errors="replace").strip()
    if running.returncode:
        to.unlink(missing_ok=True)
        raise OutputError(f"ffmpeg failed ({running.returncode}): {said or 'it does not say why'}")
