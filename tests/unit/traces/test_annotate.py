"""Rules and changes: what they assign and keep, and that the output says what was done."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rota.cli.app import run
from rota.core.errors import OptionError, OutputError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.sensitivity import Sensitivity
from rota.core.topology import NodeSpec
from rota.core.workload import Workload
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.read import read_trace
from rota.traces.schema import events_frame
from rota.traces.synth.generate import generate
from rota.traces.tools.annotate import RULES, annotate, split_rule
from rota.traces.tools.change import chance, parse_window, sample_users, scale_load, window
from rota.traces.tools.convert import read_known, write_known

ALL = (
    "models:resnet-50=3,bert=1",
    "speeds:v100=1,p100=0.6,k80=0.3,spread=0.2",
    "deadlines:factor=1.5-3,share=0.5",
    "estimates:factor=1-5",
    "priorities:high=0.2,value=7",
)


@pytest.fixture(scope="module")
def trace():
    options = {"users": "20", "max_s": "50000"}
    return Imported(
        generate("philly-like", jobs=4_000, gpus=64, load=0.9, seed=1, options=options),
        name="philly",
    )


@pytest.fixture
def small():
    """Return four jobs with everything that a trace can tell."""
    frame = pl.DataFrame(
        {
            "job_id": ["a", "b", "c", "d"],
            "submit_s": [0.0, 100.0, 200.0, 300.0],
            "num_gpus": [1.0, 2.0, 1.0, 4.0],
            "duration_s": [50.0, 60.0, 70.0, 80.0],
            "user": ["ann", "bob", "ann", "eve"],
            "deadline_s": [None, 190.0, None, 500.0],
            "depends_on": [[], ["a"], ["b"], []],
        }
    )
    seen = [Seen(i, 10.0 + 100 * i, 60.0 + 100 * i, ("n1",), (1.0,), "done") for i in range(4)]
    events = events_frame(
        [
            (5.0, "capacity", "x", 8.0, ""),
            (50.0, "capacity", "x", 4.0, ""),
            (60.0, "node_down", "n1", 0.0, ""),
            (150.0, "node_up", "n1", 0.0, ""),
            (900.0, "capacity", "x", 2.0, ""),
        ]
    )
    return Imported(
        frame, observed=Observed.of(seen), events=events, cluster=[NodeSpec("n1", 8)],
        name="small", origin="2024-01-01 00:00:00",
    )  # fmt: skip


# --- rules ---------------------------------------------------------------------------------------


def test_models_come_by_weight(trace):
    found = Counter(annotate(trace, ALL[:1], 1).jobs["model"])
    assert set(found) == {"resnet-50", "bert"}
    assert found["bert"] / 4_000 == pytest.approx(0.25, abs=0.03)


def test_speeds_spread_around_the_given_and_the_reference_stays(trace):
    made = annotate(trace, ["speeds:v100=1,k80=0.3,spread=0.2"], 1)
    speeds = pl.DataFrame([b.speeds for b in made.workload.behaviours])
    assert set(speeds["v100"]) == {1.0}
    assert speeds["k80"].min() == pytest.approx(0.24, abs=0.001)
    assert speeds["k80"].max() == pytest.approx(0.36, abs=0.001)
    assert speeds["k80"].mean() == pytest.approx(0.3, rel=0.02)


def test_speeds_may_be_those_of_a_model(trace):
    made = annotate(trace, ["models:a,b,c", "speeds:k80=0.3,spread=0.5,by=model"], 1)
    assert made.jobs.select("model", "speeds").unique().height == 3


def test_deadlines_and_estimates_are_multiples_of_the_duration(trace):
    jobs = annotate(trace, ALL[2:4], 1).jobs
    with_deadline = jobs.filter(pl.col("deadline_s").is_not_null())
    assert with_deadline.height / 4_000 == pytest.approx(0.5, abs=0.04)
    later = with_deadline["deadline_s"] - with_deadline["submit_s"]
    long = with_deadline["duration_s"] > 1_000  # rounding up to whole seconds is small there
    factors = (later / with_deadline["duration_s"]).filter(long)
    assert 1.5 <= factors.min() < 1.55
    assert 2.95 < factors.max() <= 3.001
    assert (jobs["estimate_s"] >= jobs["duration_s"]).all()
    assert (jobs["estimate_s"] % 1 == 0).all()


def test_priorities_go_to_a_share(trace):
    found = Counter(annotate(trace, ALL[4:], 1).jobs["priority"])
    assert set(found) == {0, 7}
    assert found[7] / 4_000 == pytest.approx(0.2, abs=0.03)


def test_a_part_gets_the_same_as_the_whole_and_rules_do_not_disturb_each_other(trace):
    whole = annotate(trace, ALL, 3).jobs
    part = annotate(trace.first(500), list(reversed(ALL)), 3).jobs
    assert part.equals(whole.head(500))
    assert not annotate(trace, ALL, 4).jobs.head(500).equals(part)


def test_everything_else_stays(small):
    made = annotate(small, ["priorities:high=1"], 0)
    assert made.jobs.drop("priority").equals(small.jobs.drop("priority"))
    assert made.observed.frame.equals(small.observed.frame)
    assert made.events.equals(small.events)
    assert (made.cluster, made.name, made.origin) == (small.cluster, small.name, small.origin)
    assert made.notes == ["annotate priorities:high=1 seed 0"]
    assert small.notes == []


def test_chances_are_uniform_and_fixed():
    drawn = np.array([chance(1, "rule", str(i)) for i in range(10_000)])
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.02)
    assert (drawn.min() >= 0, drawn.max() < 1) == (True, True)
    assert chance(1, "rule", "7") == drawn[7]
    assert len({chance(1, "rule", "7"), chance(2, "rule", "7"), chance(1, "other", "7")}) == 3


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("modles:a", "did you mean 'models'"),
        ("models", "names no model"),
        ("models:a=0", "all weights are 0"),
        ("models:a=x", "a=x is out of range"),
        ("models:a,a=2", "given twice"),
        ("speeds:spread=0.1", "names no GPU type"),
        ("speeds:k80=0", "k80=0 is out of range"),
        ("speeds:k80=0.5,by=user", "by=user"),
        ("deadlines", "factor is missing: write deadlines:factor=1.5-3"),
        ("deadlines:factor=3-1.5", "at least 3"),
        ("deadlines:factor=0", "factor=0 is not above 0"),
        ("estimates:factor=2,shares=1", "unknown option 'shares'"),
        ("estimates:factor=2,share=2", "at most 1"),
        ("priorities:high=nan", "high=nan"),
        ("priorities:value=1.5", "not a whole number"),
    ],
)
def test_bad_rules_are_named_with_the_remedy(small, rule, named):
    with pytest.raises(OptionError, match=named):
        annotate(small, [rule], 0)


def test_the_rules_say_how_they_are_written(small):
    for name, (text, _) in RULES.items():
        example = next(word for word in text.replace(";", " ").split() if word.startswith(name))
        assert split_rule(example)[0] == name
        assert len(annotate(small, [example], 0).notes) == 1


# --- changes -------------------------------------------------------------------------------------


def test_scaling_divides_times_and_keeps_the_slack(small):
    made = scale_load(small, 2)
    assert made.jobs["submit_s"].to_list() == [0, 50, 100, 150]
    assert made.jobs["deadline_s"].to_list() == [None, 140, None, 350]
    assert made.jobs["duration_s"].equals(small.jobs["duration_s"])
    assert made.events["time_s"].to_list() == [2.5, 25, 30, 75, 450]
    assert len(made.observed) == 0
    assert made.notes == ["scale-load 2; the observed schedule was left out"]


def test_a_window_moves_the_clock_and_knows_the_state_at_its_beginning(small):
    made = window(small, 100.0, 300.0)
    assert made.jobs["job_id"].to_list() == ["b", "c"]
    assert made.jobs["submit_s"].to_list() == [0, 100]
    assert made.jobs["deadline_s"].to_list() == [90, None]
    assert made.jobs["depends_on"].to_list() == [[], ["b"]]
    assert made.observed.frame["start_s"].to_list() == [10, 110]
    assert made.observed.frame["job"].to_list() == [0, 1]
    assert made.events.select("time_s", "kind", "value").rows() == [
        (0, "capacity", 4), (0, "node_down", 0), (50, "node_up", 0),
    ]  # fmt: skip
    assert made.origin == "2024-01-01 00:01:40"
    assert made.quality.dropped == {"outside the window": 2}
    assert made.quality.repaired == {"dependency on a job that was left out removed": 1}
    assert made.notes == ["window 100:300"]


def test_users_are_kept_whole_and_a_smaller_share_is_a_part(trace):
    half, fifth = (sample_users(trace, share, 2).jobs for share in (0.5, 0.2))
    assert 0 < fifth.height < half.height < 4_000
    assert set(fifth["job_id"]) < set(half["job_id"])
    chosen = set(half["user"])
    everything = trace.jobs.filter(pl.col("user").is_in(list(chosen)))
    assert half.equals(everything)
    assert set(sample_users(trace, 0.5, 3).jobs["user"]) != chosen


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0:90", (0, 90)),
        ("1d:1w", (86_400, 604_800)),
        ("1.5h:", (5_400, float("inf"))),
        (":30m", (0, 1_800)),
    ],
)
def test_windows(text, span):
    assert parse_window(text) == span


@pytest.mark.parametrize("text", ["5", "9:3", "a:b", "-1:3", "2y:3y"])
def test_bad_windows(text):
    with pytest.raises(OptionError, match=r"window .*(FROM:TO|is not a time)"):
        parse_window(text)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: scale_load(t, 0), "scale-load 0"),
        (lambda t: sample_users(t, 1.5, 0), "sample-users 1.5"),
        (lambda t: sample_users(t, 1e-9, 0), "keeps none of 4 jobs"),
        (lambda t: window(t, 1e6, 2e6), "keeps none of 4 jobs"),
    ],
)
def test_bad_changes(small, change, named):
    with pytest.raises(OptionError, match=named):
        change(small)


def test_users_that_nobody_told_cannot_be_sampled(small):
    nameless = Imported(small.jobs.with_columns(user=pl.lit("")))
    with pytest.raises(OptionError, match="does not say who"):
        sample_users(nameless, 0.5, 0)


# --- on disk -------------------------------------------------------------------------------------


def test_a_folder_and_a_file_keep_the_history(trace, tmp_path):
    made = annotate(scale_load(trace, 2), ["deadlines:factor=2"], 1)
    for output in (tmp_path / "folder", tmp_path / "jobs.csv"):
        write_known(made, output, source="philly")
        again = read_known(output, None, None)
        assert again.notes == [*made.notes, f"from {output.name}"]
        assert again.workload.specs == made.workload.specs
    with pytest.raises(OutputError, match="is there already"):
        write_known(made, tmp_path / "jobs.csv", source="philly")


def test_speeds_need_a_folder(trace, tmp_path):
    made = annotate(trace, ["speeds:k80=0.5"], 1)
    with pytest.raises(OutputError, match="give a folder"):
        write_known(made, tmp_path / "jobs.csv", source="")
    write_known(made, tmp_path / "jobs", source="")
    assert read_trace(tmp_path / "jobs").workload.behaviours[0].speeds == {"k80": 0.5 * 1.0}


def test_speeds_by_cpus_and_memory_are_kept_or_refused(tmp_path):
    table = Sensitivity((1.0, 2.0), (10.0,), ((1.0,), (1.5,)), 0.5)
    specs = [JobSpec(name, float(at), Request.of(1), user=name) for at, name in enumerate("abcd")]
    truths = [Behaviour(10.0, sensitivity=table if spec.id in "ac" else None) for spec in specs]
    whole = Imported(Workload(specs, truths, name="w"))
    changed = annotate(scale_load(window(whole, 1.0, 4.0), 2), ["priorities:high=1"], 1)
    write_known(changed, tmp_path / "jobs", source="")
    for made in (changed, read_trace(tmp_path / "jobs"), sample_users(changed, 1.0, 1)):
        assert [it.sensitivity for it in made.workload.behaviours] == [None, table, None]
    with pytest.raises(OutputError, match="no room for speeds by CPUs and memory: give a folder"):
        write_known(changed, tmp_path / "jobs.csv", source="")
    assert "sensitivity" in write_known(changed, tmp_path / "jobs.swf", source="")


def test_commands(trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_known(trace, tmp_path / "jobs.csv", source="")

    def rota(*words):
        code = run(["trace", *words])
        return code, *capsys.readouterr()

    assert rota("fit", "jobs.csv", "-o", "m.json")[0] == 0
    assert json.loads(rota("fit", "jobs.csv")[1]) == json.loads((tmp_path / "m.json").read_text())
    drawn = ("generate", "fit:m.json", "--jobs", "300", "--cluster", "8x8", "-o", "new.csv")
    assert "300 jobs, load 0.900 on 64 GPUs" in rota(*drawn)[2]
    words = ("change", "new.csv", "--window", "0:9w", "--sample-users", "0.7", "--scale-load", "2")
    assert rota(*words, "-o", "part")[0] == 0
    rule = ("annotate", "part", "--rule", "models:a,b", "--seed", "4", "-o", "done.csv")
    assert rota(*rule)[0] == 0
    notes = json.loads((tmp_path / "done.csv.json").read_text())["notes"]
    assert [note.split(":")[0] for note in notes] == [
        "from new.csv", "window 0", "sample-users 0.7 seed 0", "scale-load 2", "from part",
        "annotate models",
    ]  # fmt: skip
    assert set(read_trace("done.csv").jobs["model"]) == {"a", "b"}


def test_a_conversion_keeps_what_was_done_before(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,60\nb,9,2,60\n")
    rule = ["--rule", "deadlines:factor=2", "-o"]
    assert run(["trace", "annotate", "jobs.csv", *rule, "urgent.csv"]) == 0
    for source, output in (("urgent.csv", "f"), ("f", "f.swf"), ("f.swf", "g"), ("g", "h.csv")):
        assert run(["trace", "convert", source, "-o", output]) == 0
    notes = json.loads(Path("h.csv.json").read_text())["notes"]
    assert notes[:2] == ["from jobs.csv", "annotate deadlines:factor=2 seed 0"]
    assert run(["trace", "convert", "jobs.csv", "-o", "h.csv", "--force"]) == 0
    assert not Path("h.csv.json").exists()  # it told of other jobs
    assert "deadline_s: it is lost" in capsys.readouterr().err


def test_changes_that_leave_nothing_say_what_there_is(small):
    with pytest.raises(
        OptionError, match=r"keeps none of .*submitted from 0 to \d+.* s: cut there"
    ):
        window(small, 1e9, 2e9)
    with pytest.raises(OptionError, match=r"scale-load .*times become endless"):
        scale_load(small, 1e-320)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["change", "none.csv", "-o", "x"], "nothing to change"),
        (["annotate", "none.csv", "--rule", "size", "-o", "x"], "unknown rule 'size'"),
        (["generate", "fit", "--jobs", "9", "--cluster", "1x8", "-o", "x"], "file is missing"),
        (["change", "none.csv", "--window", "3", "-o", "x"], "FROM:TO"),
    ],
)
def test_commands_say_what_is_wrong(words, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["trace", *words]) == 2
    assert named in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
