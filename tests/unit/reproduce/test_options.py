"""What dialects understand, what they refuse, and what they say."""

import msgspec
import pytest

from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import parse_params, split
from rota.core.topology import NodeSpec, Topology
from rota.core.workload import Workload
from rota.reproduce.blox.dialect import BloxDialect
from rota.reproduce.tiresias.dialect import TiresiasDialect
from rota.study import dialect as base

DIALECTS = [TiresiasDialect, BloxDialect]
SMALL = Topology.uniform(2, 4)


def build(text, policy, placement=None, topology=SMALL):
    name, options = split(text)
    kind = {"tiresias": TiresiasDialect, "blox": BloxDialect}[name]
    dialect = kind(parse_params(f"dialect {name!r}", kind.Parameters, options))
    return dialect.build(policy, placement, topology, seed=0)


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_dialect_says_what_it_is(kind):
    dialect = kind()
    assert dialect.name
    assert dialect.description
    assert "20" in dialect.source
    assert dialect.costs == "zero"
    assert all(note and isinstance(note, str) for note in dialect.notes.values())
    assert any(name.startswith("departure") for name in dialect.notes)


def test_tiresias_leaves_the_clock_alone_and_blox_imposes_rounds():
    assert (
        TiresiasDialect().finish_round_s,
        TiresiasDialect().wake,
        TiresiasDialect().placement,
    ) == (0, None, "count")
    assert (BloxDialect().finish_round_s, BloxDialect().wake.every_s, BloxDialect().placement) == (
        300,
        300,
        "scatter",
    )
    assert BloxDialect().wake.on == frozenset()


@pytest.mark.parametrize("kind", DIALECTS)
def test_every_listed_policy_can_be_built(kind, tmp_path):
    samples = tmp_path / "samples.csv"
    samples.write_text("duration\n100\n\n")
    for name in kind.policies:
        text = f"gittins:distribution={samples}" if name == "gittins" else name
        scheduler = kind().build(text, None, SMALL, seed=0)
        assert scheduler.name == name
        msgspec.msgpack.encode(scheduler.snapshot())


@pytest.mark.parametrize(
    ("dialect", "policy", "known"),
    [("tiresias", "fjf", r"fifo-skip \(their fjf\)"), ("blox", "gavel", "srtf")],
)
def test_an_unknown_policy_is_answered_with_the_known_ones(dialect, policy, known):
    with pytest.raises(OptionError, match=known):
        build(dialect, policy)


@pytest.mark.parametrize(
    ("dialect", "policy", "placement", "message"),
    [
        ("tiresias", "srtf", "yarn", "does not give memory back"),
        ("tiresias", "smallest", "yarn", "--placement count"),
        ("tiresias", "srsf", "yarn", "refuses 'srsf'"),
        ("tiresias", "fifo", "consolidate", "count and yarn"),
        ("tiresias", "fifo", "yarn:x=1", "without options"),
        ("tiresias", "fifo:strict=no", None, "no parameters"),
        ("tiresias", "srtf:promote=1", None, "no parameters"),
        ("tiresias", "las:promote=1", None, "unknown parameter 'promote'"),
        ("tiresias", "tiresias:promote=-1", None, "give 0 or more"),
        ("tiresias", "tiresias:promote=inf", None, "give 0 or more"),
        ("tiresias", "tiresias:promote=x", None, "promote=x"),
        ("tiresias", "tiresias:limits=", None, "growing limits"),
        ("tiresias", "las:limits=5/5", None, "growing limits"),
        ("tiresias", "gittins", None, "gittins:distribution=FILE"),
        ("tiresias", "gittins:distribution=nowhere.csv", None, "nowhere.csv"),
        ("tiresias", "gittins:distribution=x,delta=0", None, "delta=0"),
        ("blox", "las:limits=1", None, "no parameters"),
        ("blox", "fifo", "consolidate", "scatter"),
        ("blox:round=0", "fifo", None, "round=0"),
        ("blox:round=1.5", "fifo", None, "round=1.5"),
        ("blox:scatter=no", "fifo", None, "scatter=no"),
        ("blox:rounds=1", "fifo", None, "did you mean 'round'"),
    ],
)
def test_what_cannot_be_honoured_is_refused(dialect, policy, placement, message):
    with pytest.raises(OptionError, match=message):
        build(dialect, policy, placement)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be 'duration'"),
        ("size\n1\n", "must be 'duration'"),
        ("duration\n", "no samples"),
        ("duration\n3\nx\n", "line 3: 'x'"),
        ("duration\n0\n", "line 2: '0'"),
        ("duration\n-4\n", "above 0"),
        ("duration\n2.5\n", "whole number"),
    ],
)
def test_a_bad_distribution_is_told(tmp_path, text, message):
    path = tmp_path / "samples.csv"
    path.write_text(text)
    with pytest.raises(OptionError, match=message):
        build("tiresias", f"gittins:distribution={path}")


def test_a_distribution_that_is_no_text_is_told(tmp_path):
    path = tmp_path / "samples.csv"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="cannot read"):
        build("tiresias", f"gittins:distribution={path}")


@pytest.mark.parametrize("dialect", ["tiresias", "blox"])
def test_several_types_of_gpus_are_refused(dialect):
    mixed = Topology([NodeSpec("a", 4, "v100"), NodeSpec("b", 4, "k80")])
    with pytest.raises(OptionError, match="one type of GPU, this cluster has v100, k80"):
        build(dialect, "fifo", topology=mixed)


def test_yarn_refuses_unequal_nodes():
    uneven = Topology([NodeSpec("a", 4), NodeSpec("b", 8)])
    with pytest.raises(OptionError, match="nodes of 4 and 8 GPUs"):
        build("tiresias", "fifo", "yarn", uneven)


@pytest.mark.parametrize("dialect", [TiresiasDialect(), BloxDialect()])
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_requests_that_mean_nothing_here_are_rejected(lab, dialect, policy):
    requests = [
        Request.of(0.5),
        Request.of(0, cpus=1),
        Request.of(1, gpu_types=("v100",)),
        Request.of(1, labels=("ssd",)),
        Request.of(1, gpu_types=("",)),
        Request.of(1, cpus=3, mem_gib=5),
    ]
    jobs = Workload(
        [JobSpec(str(i), 0.0, request) for i, request in enumerate(requests)],
        [Behaviour(10.0)] * len(requests),
    )
    outcome = lab.simulate(dialect, policy, (1, 4), jobs)
    assert [state for *_, state in outcome] == ["rejected"] * 4 + ["done"] * 2


def test_options_given_win_over_the_defaults(lab):
    rows = [(0, 1, 100), (60, 1, 20)]
    normal, early = (
        [end for end, *_ in lab.simulate(TiresiasDialect(), policy, (1, 1), rows)]
        for policy in ("las", "las:limits=50")
    )
    assert normal == [100, 120]
    assert early == [120, 80]


def test_dialects_are_found_through_the_registry(monkeypatch):
    monkeypatch.setattr(base, "load", lambda group, name: {"blox": BloxDialect}[name])
    dialect = base.create("blox:round=60,scatter=fixed")
    assert (dialect.finish_round_s, dialect.wake.every_s) == (60, 60)
    assert "60 s" in dialect.notes["rounds"]
    assert "repaired" in dialect.notes["scatter"]
