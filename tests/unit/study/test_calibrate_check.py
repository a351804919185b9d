"""Parts of a calibration: broken-off starts, short jobs, and the check against another run."""

import numpy as np
import polars as pl
import pytest

from rota.core.errors import InputError
from rota.core.jobs import Request, TaskGroup
from rota.core.log import Record
from rota.study.calibration.calibrate import Calibration, Foresight, calibrate, check, report
from rota.study.calibration.fit import fit
from rota.study.calibration.samples import TOLD, Timings, observe
from rota.study.calibration.setting import _request, read_log

LABELS = [record.name.lower() for record in Record]
KINDS = pl.Enum(LABELS)


def log_of(*rows):
    """Return a log; rows are (time, event, job, ref, other, value, text)."""
    names = {"time_s": float, "event": str, "job": int, "ref": int, "other": int, "value": float,
             "text": str}  # fmt: skip
    return pl.DataFrame(rows, schema=names, orient="row").cast(
        {"event": KINDS, "job": pl.Int32, "ref": pl.Int32, "other": pl.Int32}
    )


HEAD = (
    (0.0, "vertex", -1, 0, -1, 1.0, "cluster:cluster"),
    (0.0, "vertex", -1, 1, 0, 1.0, "node:n0"),
    (0.0, "tenant", -1, 0, -1, 0.0, ""),
    (0.0, "shape", -1, 0, -1, 1.0, "1 GPU"),
    (0.0, "allocation", -1, 0, 1, 1.0, None),
)


def life_of(job, at_s, *, breaks_off_s=None, run_s=10.0, start_s=2.0):
    """Return the rows of a job that runs alone; perhaps its first start is broken off at once."""
    rows = [(at_s, "submit", job, 0, 0, 1.0, str(job))]
    if breaks_off_s is not None:
        rows += [
            (at_s, "start", job, 0, 0, TOLD, None),
            (at_s + 1, "stop", job, 0, -1, 0.0, None),
            (at_s + 1 + breaks_off_s, "stopped", job, -1, -1, 0.0, None),
        ]
        at_s += 1 + breaks_off_s
    return [
        *rows,
        (at_s, "start", job, 0, 0, TOLD, None),
        (at_s + start_s, "run", job, -1, -1, 1.0, None),
        (at_s + start_s + run_s, "done", job, -1, -1, 0.0, None),
    ]


def write_run(folder, rows, declared_s):
    """Make a run folder as a daemon does."""
    folder.mkdir()
    log_of(*HEAD, *rows, (rows[-1][0], "end", -1, 0, 0, 0.0, None)).write_parquet(
        folder / "events.parquet"
    )
    lines = ["job_id,submit_s,num_gpus,duration_s,estimate_s"]
    lines += [f"{i},0,1,1,{estimate_s}" for i, estimate_s in enumerate(declared_s)]
    (folder / "workload.csv").write_text("\n".join(lines) + "\n")
    (folder / "manifest.json").write_text(
        '{"config": {"policy": "fifo", "cluster": "1x1", "trace": "workload.csv"}}'
    )
    return folder


@pytest.fixture
def broken_off(tmp_path):
    """Return a run of six jobs, one after the other, each broken off once."""
    rows = [row for i in range(6) for row in life_of(i, 20.0 * i, breaks_off_s=0.25)]
    return write_run(tmp_path / "run", rows, [10.0] * 6)


def test_stops_of_jobs_that_were_being_started_are_measured_apart(broken_off):
    observed = observe(read_log(broken_off))
    assert observed.abort.seconds.tolist() == [0.25] * 6
    assert len(observed.stop) == 0
    found = calibrate(broken_off, runs=2)
    assert found.fit.first.note == "every first start was broken off: taken as a restart"
    assert found.fit.params().first_s == 2.0
    assert found.fit.params().abort_s == 0.25
    assert found.fit.params().stop_s == 0.0
    assert "stop while starting | 0.250 s" in report(found)


def test_without_any_they_count_as_stops(tmp_path):
    rows = [row for i in range(6) for row in life_of(i, 20.0 * i)]
    found = calibrate(write_run(tmp_path / "run", rows, [10.0] * 6), runs=2)
    assert found.fit.abort.samples == 0
    assert found.fit.params().abort_s is None
    assert "taken as a stop" in found.fit.abort.note


def test_every_second_of_work_counts_the_same(tmp_path):
    """A job of 0.1 s that takes twice as long does not double the others."""
    works = [0.2, 0.2, 0.2, 20.0, 20.0, 20.0]
    rows = [row for i, run_s in enumerate(works) for row in life_of(i, 30.0 * i, run_s=run_s)]
    declared = [0.1, 0.1, 0.1, 20.0, 20.0, 20.0]
    found = calibrate(write_run(tmp_path / "run", rows, declared), runs=2)
    assert found.fit.rate.value == pytest.approx(sum(works) / sum(declared))
    drawn = found.fit.factors(10_000, np.random.default_rng(0))
    assert set(drawn.round(9).tolist()) <= {1.0, 2.0}
    assert drawn.mean() == pytest.approx(found.fit.rate.value, abs=0.01)


def test_work_that_seems_won_by_a_stop_is_not_drawn_as_lost(broken_off):
    observed = observe(read_log(broken_off))
    seconds = np.array([-0.5, 0.5, -0.6, 0.4])
    lost = Timings(seconds, np.arange(4))
    fitted = fit(replaced(observed, lost), Timings(np.ones(6), np.arange(6)), 0)
    drawn = [fitted.drawn(number, 0)._seen["lost"] for number in range(50)]
    assert all(values.tolist() == [max(0.0, fitted.means["lost"][i])] for i, values in
               enumerate(drawn))  # fmt: skip
    assert fitted.params().lost_work_s == 0.0


def replaced(observed, lost):
    import msgspec

    return msgspec.structs.replace(observed, lost=lost)


def test_another_run_is_predicted_from_what_was_submitted(broken_off, tmp_path):
    rows = [row for i in range(4) for row in life_of(i, 30.0 * i, run_s=9.0)]
    other = write_run(tmp_path / "other", rows, [8.0, 8.0, 8.0, 8.0])
    found = calibrate(broken_off, runs=2)
    seen = check(found, other, runs=3)
    assert isinstance(found, Calibration)
    assert isinstance(seen, Foresight)
    mean_jct = seen.errors[0]
    assert mean_jct.metric == "mean JCT"
    assert mean_jct.live == pytest.approx(11.0)
    assert mean_jct.simulated == pytest.approx(10.0)  # it was declared to be shorter than it was
    assert mean_jct.error == pytest.approx(-1 / 11)
    assert "The run itself, of which the prediction knows only what was submitted" in report(
        found, seen
    )


def test_a_run_without_jobs_cannot_be_compared_with(broken_off, tmp_path):
    rows = [(0.0, "submit", 0, 0, 0, 1.0, "0")]
    other = write_run(tmp_path / "other", rows, [8.0])
    with pytest.raises(InputError, match="nothing to compare with"):
        check(calibrate(broken_off, runs=2), other)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("2 GPUs", Request.of(2)),
        ("0.5 GPUs", Request.of(0.5)),
        ("1 GPU of type a100|h100, 4 CPUs, 8 GiB", Request.of(1, gpu_types=("a100", "h100"),
                                                             cpus=4.0, mem_gib=8.0)),
        ("8 GPUs on 2 nodes of type a100, 4 CPUs",
         Request((TaskGroup("worker", 2, 4, 2.0),), ("a100",), apart=True)),
        ("1 GPU, on nodes labelled fast, big", Request.of(1, labels=("fast", "big"))),
    ],
)  # fmt: skip
def test_the_log_says_what_a_job_asked_for(text, request_):
    assert _request(text) == request_
