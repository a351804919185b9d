"""What jobs use: measured from processes and GPUs, kept as series, added up, and what follows."""

import subprocess
import sys

import pytest

from rota.core.efficiency import JobUsage, advice
from rota.core.errors import OptionError
from rota.core.jobs import Request, Shape
from rota.daemon.efficiency import MOST_POINTS, MOST_SAMPLES, UsageBook, summaries
from rota.live.agent.health import HealthAnswer
from rota.live.agent.messages import PartKey, PartUsage
from rota.live.agent.usage import (
    MeasuredPart,
    UsageWatch,
    checked_exporter,
    dcgm_shares,
    exporter_shares,
    gpu_shares,
    process_table,
    used_below,
)

TABLE = "0, GPU-a, 90\n1, GPU-b, 0\n2, GPU-c, [N/A]\nnoise\n"


def shape(gpus=2, cpus=8.0, mem_gib=16.0):
    return Shape(0, Request.of(gpus, cpus=cpus, mem_gib=mem_gib))


def test_the_table_of_nvidia_smi():
    assert gpu_shares(TABLE) == {"0": 0.9, "GPU-a": 0.9, "1": 0.0, "GPU-b": 0.0}


DMON = """#Entity   GPUTL   GRACT
ID
GPU 0     90      0.731
GPU 1     40      N/A
GPU 2     N/A     N/A
GPU-I 3   N/A     0.500
"""
EXPORTED = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1"} 20
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a"} 1410
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_ID="1"} 0.25
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_ID="2"} 0.75
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="2",UUID="GPU-c"} nan
"""


def test_what_dcgm_tells():
    assert dcgm_shares(DMON) == {"0": 0.731, "1": 0.4}
    assert dcgm_shares("Error: unable to establish a connection\n") == {}
    assert exporter_shares(EXPORTED) == {"0": 0.9, "GPU-a": 0.9, "1": 0.75, "GPU-b": 0.75}
    assert exporter_shares("<html>") == {}


def busy_by(monkeypatch, programs, answers, devices, **options):
    """Return how busy a part with these GPUs is told to be, and what was asked."""
    monkeypatch.setattr("rota.live.agent.usage.process_table", dict)
    monkeypatch.setattr("shutil.which", lambda name: name if name in programs else None)
    clock, told, asked = Clock(), [], []

    def ask(command, timeout_s):
        asked.append(command[0])
        return HealthAnswer(0, answers[command[0]])

    part = MeasuredPart(PartKey("7.0", 0), 10, devices)
    watch = UsageWatch(lambda: [part], told.extend, ask, clock, **options)
    for _ in range(2):
        watch.look()
        clock.now += 1.0
    return told[0].busy, set(asked)


def test_dcgm_knows_of_gpus_that_nvidia_smi_does_not_know(monkeypatch):
    both, answers = ("nvidia-smi", "dcgmi"), {"nvidia-smi": TABLE, "dcgmi": "GPU 2 N/A 0.5\n"}
    assert busy_by(monkeypatch, both, answers, ["0"]) == (0.9, {"nvidia-smi"})
    assert busy_by(monkeypatch, both, answers, ["2"]) == (0.5, {*both})
    assert busy_by(monkeypatch, ("dcgmi",), {"dcgmi": DMON}, ["0"]) == (0.731, {"dcgmi"})
    assert busy_by(monkeypatch, (), {}, ["0"]) == (None, set())


def test_an_exporter_is_read_instead(monkeypatch):
    urls = []

    def fetch(url, timeout_s):
        urls.append(url)
        return EXPORTED

    options = {"exporter": "http://localhost:9400/metrics", "fetches": fetch}
    found = busy_by(monkeypatch, ("nvidia-smi",), {"nvidia-smi": TABLE}, ["1"], **options)
    assert found == (0.75, set())
    assert set(urls) == {options["exporter"]}
    assert checked_exporter("") == ""
    with pytest.raises(OptionError, match="write its address"):
        checked_exporter("file:///etc/passwd")


def test_everybody_below_a_process_counts_and_so_do_those_who_are_gone():
    table = {1: (0, 5.0, 1.0), 2: (1, 3.0, 2.0), 3: (2, 1.0, 4.0), 9: (0, 99.0, 99.0)}
    assert used_below(1, table) == (9.0, 6.0)  # the shim's own memory is not the job's
    assert used_below(7, table) == (0.0, 0.0)


def test_a_real_process_is_measured():
    script = "x = bytearray(64 << 20)\nprint('there', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout.readline()
        found = process_table()[job.pid]
        job.communicate(b"\n")
    assert found[2] > 64 / 1024
    assert found[1] >= 0


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_runs_are_looked_at_early_and_then_seldom(monkeypatch):
    cpu_s, told, asked = [0.0], [], []
    monkeypatch.setattr(
        "rota.live.agent.usage.process_table",
        lambda: {10: (1, 0.0, 0.0), 11: (10, cpu_s[0], 1.5)},
    )
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    clock = Clock()

    def ask(command, timeout_s):
        asked.append(command[0])
        return HealthAnswer(0, TABLE)

    parts = [MeasuredPart(PartKey("7.0", 0), 10, ["0", "1"])]
    watch = UsageWatch(lambda: parts, told.extend, ask, clock)
    looks = []
    for _ in range(40):
        before = len(told)
        watch.look()
        if len(told) > before:
            looks.append(clock.now - 100)
        clock.now += 1.0
        cpu_s[0] += 0.5
    assert looks == [1.0, 3.0, 7.0, 15.0, 25.0, 35.0]
    assert set(told) == {PartUsage("7.0", 0, 0.5, 1.5, 0.45, 1.0)}
    assert set(asked) == {"nvidia-smi"}
    parts.clear()
    watch.look()
    assert watch._seen == {}


def test_who_uses_more_gpu_memory_than_it_may(monkeypatch):
    table = {10: (1, 0, 0), 11: (10, 0, 0), 12: (11, 0, 0), 20: (1, 0, 0), 21: (20, 0, 0)}
    monkeypatch.setattr("rota.live.agent.usage.process_table", lambda: table)
    monkeypatch.setattr("shutil.which", lambda name: name)
    apps = [""]

    def ask(command, timeout_s):
        return HealthAnswer(0, apps[0] if "compute-apps" in command[1] else TABLE)

    clock, found = Clock(), []
    parts = [
        MeasuredPart(PartKey("7.0", 0), 10, ["0", "1"], 4.0),
        MeasuredPart(PartKey("8.0", 0), 20, ["0"]),  # nobody said how much
    ]
    watch = UsageWatch(
        lambda: parts, lambda told: None, ask, clock, exceeded=lambda *each: found.append(each)
    )
    for text, expected in (
        ("11, GPU-a, 4096\n21, GPU-a, 99999\n", []),
        ("11, GPU-a, 3072\n12, GPU-b, 3072\n", []),  # of each GPU
        ("11, GPU-a, 3072\n12, GPU-a, 3072\nnoise\n12, GPU-a, [N/A]\n", [("7.0", 6.0)]),
    ):
        apps[0] = text
        found.clear()
        clock.now += 100
        watch.look()
        assert [(key.run, gib) for key, gib in found] == expected


def test_samples_are_kept_and_outlive_the_daemon(tmp_path):
    book = UsageBook(tmp_path / "usage.db")
    now = 2e9
    for second in range(4):
        book.take(
            [PartUsage("7.0", 0, 1.0 + second, 2.0, 0.5, 1.0), PartUsage("7.0", 1, 0.5, 1.0)],
            now + second,
        )
    book.take([PartUsage("x.0", 0, 1.0, 1.0)], now)  # no job of ours
    assert (book.busy, book.taken) == ({7: 0.5}, 4)  # what the map shows
    book.close()
    again = UsageBook(tmp_path / "usage.db")
    used = again.of(7, shape(), series=True)
    assert (used.samples, used.cpus_mean, used.cpus_peak) == (4, 3.0, 4.5)
    assert (used.mem_peak_gib, used.gpu_busy, used.gpus_idle) == (3.0, 0.5, 1.0)
    assert used.series[0] == (now, 1.0, 2.0, 0.5)
    assert len(used.series) == 8
    assert again.of(8, shape()).samples == 0
    again.close()


def test_a_long_series_is_thinned(tmp_path):
    book = UsageBook(tmp_path / "usage.db")
    book.take([PartUsage("7.0", 0, 1.0, 1.0)] * (MOST_SAMPLES + 1), 2e9)
    used = book.of(7, shape(), series=True)
    assert MOST_SAMPLES // 2 <= used.samples < MOST_SAMPLES
    assert len(used.series) <= MOST_POINTS
    book.close()


def used(**numbers):
    numbers = {"samples": 9, "cpus_asked": 8.0, "mem_asked_gib": 64.0, "gpus_asked": 4.0} | numbers
    return JobUsage(**numbers)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"cpus_peak": 7.0, "mem_peak_gib": 60.0}, []),
        ({"cpus_peak": 7.0, "mem_peak_gib": 11.0},
         ["it used at most 11 of 64 GiB: 14 GiB would do"]),
        ({"cpus_peak": 1.2, "mem_peak_gib": 60.0}, ["it used at most 1.2 of 8 CPUs: 2 would do"]),
        ({"cpus_peak": 7.0, "mem_peak_gib": 60.0, "gpu_busy": 0.4, "gpus_idle": 2.0},
         ["you asked for 4 GPUs, 2 were idle"]),
        ({"cpus_peak": 7.0, "mem_peak_gib": 60.0, "gpu_busy": 0.12, "gpus_idle": 0.0},
         ["its GPUs were busy 12% of the time"]),
        ({"samples": 2, "cpus_peak": 0.1, "mem_peak_gib": 0.1, "gpus_idle": 4.0}, []),
    ],
)  # fmt: skip
def test_advice_has_numbers(numbers, told):
    assert advice(used(**numbers)) == told


def test_users_are_weighed_by_how_long_their_jobs_ran():
    jobs = [
        ("ann", used(cpus_mean=2.0, gpu_busy=0.9, gpus_idle=0.0), 300.0),
        ("ann", used(cpus_mean=6.0, gpu_busy=0.1, gpus_idle=2.0), 100.0),
        ("bob", used(cpus_mean=1.0), 50.0),
        ("eve", JobUsage(), 50.0),
    ]
    ann, bob = summaries(jobs)
    assert (ann.name, ann.jobs, ann.cpus_used) == ("ann", 2, 3.0)
    assert ann.gpu_busy == pytest.approx(0.7)
    assert ann.gpus_idle == 0.5
    assert (bob.name, bob.gpu_busy) == ("bob", None)


@pytest.mark.parametrize("number", [-1.0, float("inf"), float("nan"), 1e9])
def test_what_cannot_be_true_is_not_believed(number):
    assert not PartUsage("1.0", 0, number, 1.0).plausible
    assert PartUsage("1.0", 0, 1.0, 1.0, None, 2.0).plausible
