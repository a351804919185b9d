"""Films: what they show at each step, and what is said where a tool is missing."""

import importlib.util
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rota.core.errors import OutputError
from rota.report import movie
from rota.report.movie import animated_svg, film, layouts, write_movie
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.run import simulate

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(run_of, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    write_run(run_of(), folder)
    return folder


def test_frames_show_who_has_which_gpu(run, run_of):
    (scene,) = film([run], 400)
    held = (scene.cells > 0).mean()
    summary = run_of().summary
    span_s = scene.until_s * 16
    assert held == pytest.approx(summary["ledger"]["allocated_gpu_s"] / span_s, rel=0.03)
    assert scene.nodes == [(f"n{i}", 4) for i in range(4)]
    assert scene.most >= scene.waiting.max() > 0


def test_an_svg_moves_by_itself(run):
    scenes = film([run, run], 50)
    root = ET.fromstring(animated_svg(scenes, 8.0))  # noqa: S314 - it is ours
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("width") not in ("100%", "2")]
    assert len(boxes) == 2 * 16
    moving = [one for one in root.iter(f"{SVG}animate") if one.get("attributeName") == "fill"]
    assert moving
    for one in moving:
        times = [float(text) for text in one.get("keyTimes").split(";")]
        assert times[0] == 0
        assert times == sorted(set(times))
        assert len(times) == len(one.get("values").split(";"))
        assert one.get("dur") == "8s"
    assert len(list(root.iter(f"{SVG}script"))) == 0


@pytest.fixture
def shared_run(tmp_path):
    """Three jobs share the first GPU of four, later two; one has a GPU of its own."""
    cluster, jobs = tmp_path / "c.yaml", tmp_path / "j.csv"
    cluster.write_text("nodes: [{name: n, gpus: 4, sharing: timeslice, gpu_mem_gib: 40}]\n")
    jobs.write_text(
        "job_id,submit_s,num_gpus,duration_s,vc,gpu_mem_gib\na,0,0.3,100,t1,1\nb,0,0.3,200,t2,1\n"
        "c,0,0.3,200,t3,1\nd,0,1,200,t4,1\n"
    )
    folder = tmp_path / "shared"
    folder.mkdir()
    config = RunConfig(trace=str(jobs), cluster=str(cluster), policy="fifo-skip")
    write_run(simulate(config), folder)
    return folder


def test_all_who_share_a_gpu_are_seen(shared_run, tmp_path):
    (scene,) = film([shared_run], 40)
    by_gpu = {}
    for column, part in enumerate(scene.parts):
        by_gpu.setdefault(part.gpu, []).append(column)
    assert sorted(map(len, by_gpu.values())) == [1, 1, 1, 3]
    (columns,) = (columns for columns in by_gpu.values() if len(columns) == 3)
    sharers = [set(scene.cells[frame, columns].tolist()) - {0} for frame in range(40)]
    assert len(sharers[0]) == 3
    assert len(sharers[30]) == 2  # one is done: the others have its part
    assert 0 not in scene.cells[:-1, columns]
    root = ET.fromstring(animated_svg([scene], 8.0))  # noqa: S314 - it is ours
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("width") not in ("100%", "2")]
    assert len(boxes) == 6  # three GPUs, and three parts of the fourth
    place = layouts([scene])[0][0]
    within = [part.box(place.boxes[part.gpu], place.side) for part in scene.parts]
    inside = [within[column] for column in columns]
    assert all(left + wide <= right for (left, _, wide), (right, _, _) in pairwise(inside))
    pytest.importorskip("PIL.Image")
    image = next(movie.images([scene]))
    drawn = {image.getpixel((int(x) + 1, int(y) + 3)) for x, y, _ in inside}
    assert len(drawn) == 3


def test_an_svg_has_fewer_frames_rather_than_too_many_changes(run, monkeypatch):
    scenes = film([run], 200)
    whole = animated_svg(scenes, 8.0)
    monkeypatch.setattr(movie, "MOST_CHANGES", 200)
    assert len(animated_svg(scenes, 8.0)) < len(whole) / 2


def test_everything_has_its_place(run):
    scenes = film([run, run], 4)
    places, height = layouts(scenes)
    assert height % 2 == 0, "as films need it"
    assert places[0].left + places[0].wide < places[1].left
    for place in places:
        assert len(set(place.boxes)) == 16
        assert all(y + place.side < place.chart_y for _, y in place.boxes)
        assert place.chart_y + movie.CHART < height


def test_a_gif_has_its_frames(run, tmp_path):
    image = pytest.importorskip("PIL.Image")
    made = write_movie([run], tmp_path / "film.gif", seconds=2.0, fps=4)
    with image.open(made) as opened:
        assert opened.n_frames == 8
        assert opened.size[0] == movie.WIDTH
        assert opened.info["loop"] == 0
    assert [path.name for path in tmp_path.glob("film*")] == ["film.gif"]


def test_a_missing_tool_is_named_with_its_remedy(run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(OutputError, match="needs the program ffmpeg: install it"):
        write_movie([run], tmp_path / "film.mp4")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(OutputError, match=r"needs Pillow: .*\[plot\].*an \.svg or \.html needs"):
        write_movie([run], tmp_path / "film.gif")
    assert write_movie([run], tmp_path / "film.svg").exists()
    assert {path.name for path in tmp_path.glob("film*")} == {"film.svg"}


def program(path, text):
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


def test_ffmpeg_gets_all_frames(run, tmp_path, monkeypatch):
    text = (
        "import sys\ncount = len(sys.stdin.buffer.read())\n"
        "open(sys.argv[-1], 'w').write(f'{sys.argv[1:-1]} {count}')\n"
    )
    ffmpeg = program(tmp_path / "ffmpeg", text)
    monkeypatch.setattr(movie.shutil, "which", lambda _name: ffmpeg)
    told = write_movie([run], tmp_path / "film.mp4", seconds=1.0, fps=3).read_text()
    wide, high = map(int, re.search(r"(\d+)x(\d+)", told).groups())
    assert int(told.rpartition(" ")[2]) == 3 * wide * high * 3


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg: apt install ffmpeg")
def test_ffmpeg_makes_a_film_that_can_be_read(run, tmp_path):
    made = write_movie([run], tmp_path / "film.mp4", seconds=2.0, fps=4)
    decode = ["ffmpeg", "-v", "error", "-i", made, "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    pixels = subprocess.run(decode, check=True, capture_output=True).stdout
    frames = np.frombuffer(pixels, dtype=np.uint8).reshape(8, -1, movie.WIDTH)
    assert len({frame.tobytes() for frame in frames}) > 4, "it moves"
    assert frames.std() > 10, "there is something to see"


def test_a_failure_of_ffmpeg_is_told(run, tmp_path, monkeypatch):
    ffmpeg = program(tmp_path / "ffmpeg", "import sys\nsys.exit('no such codec')\n")
    monkeypatch.setattr(movie.shutil, "which", lambda _name: ffmpeg)
    with pytest.raises(OutputError, match=r"ffmpeg failed \(1\): no such codec"):
        write_movie([run], tmp_path / "film.mp4", seconds=1.0, fps=3)
    assert not list(tmp_path.glob("film*"))
