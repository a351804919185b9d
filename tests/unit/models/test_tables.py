"""Rates from tables of throughputs, alone and in pairs."""

import os

import pytest

from rota.core.allocation import Allocation, as_guest
from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.topology import NodeSpec, Topology
from rota.models.rates import Locality, Product, Scaling, Sharing, Types
from rota.models.tables import PairRates, PairsParams, TableParams, TableRates
from rota.models.throughputs import load_throughputs, parse_kind, parse_throughputs
from throughput_tables import write_table

TOPOLOGY = Topology([NodeSpec("a", 4, "v100"), NodeSpec("b", 4, "v100"), NodeSpec("c", 4, "k80")])
A, B, C = (node.id for node in TOPOLOGY.nodes)
ALONE = {("m", 1): (10.0, 2.0), ("m", 4): (30.0, 8.0), ("n", 1): (4.0, 4.0), ("z", 1): (5.0, 0.0)}


def job(model="m", gpus=1, index=0, **how):
    spec = JobSpec(f"j{index}", 0.0, Request.of(gpus), model=model)
    return Job(spec, Behaviour(100.0, **how), index, Shape(0, spec.request))


@pytest.fixture
def file(tmp_path):
    pairs = {(("m", 1), ("n", 1)): (0.5, 0.25), (("z", 1), ("m", 1)): (0.4, 0.9)}
    return write_table(tmp_path / "t.json", ALONE, pairs, {("m", 4): (20.0, 8.0)})


def table(file, **options):
    return TableRates(TOPOLOGY, TableParams(table=file, **options))


@pytest.mark.parametrize(
    ("slices", "rate"),
    [
        ([(A, 1)], 1.0),
        ([(C, 1)], 0.2),
        ([(A, 1), (C, 1)], 0.4),  # the slower type decides: half of what 4 GPUs do
        ([(A, 4)], 3.0),
        ([(A, 2)], 1 + (30 - 10) / 3 / 10),  # between 1 and 4 GPUs
        ([(A, 4), (B, 4)], 2.0),  # on two nodes, beyond the last size
    ],
)
def test_the_rate_is_relative_to_what_was_asked_on_the_reference(file, slices, rate):
    assert table(file).rate(job(), Allocation(slices), ()) == pytest.approx(rate)


def test_gpus_on_several_nodes_count_as_unconsolidated(file):
    rates = table(file)
    four = job(gpus=4)
    assert rates.rate(four, Allocation([(A, 4)]), ()) == 1.0
    assert rates.rate(four, Allocation([(A, 2), (B, 2)]), ()) == pytest.approx(2 / 3)
    pool = TOPOLOGY.pools[0].id
    assert rates.rate(four, Allocation([(pool, 4)]), ()) == 1.0  # a pool has no nodes


def test_another_reference(file):
    rates = table(file, reference="k80")
    assert rates.rate(job(), Allocation([(A, 1)]), ()) == 5.0
    assert rates.speed(job(), "k80") == 1.0


def test_a_model_that_is_not_in_the_table_has_its_own_speeds(file):
    rates = table(file)
    assert rates.rate(job("other", speeds={"k80": 0.3}), Allocation([(C, 1)]), ()) == 0.3
    assert rates.rate(job("other"), Allocation([(C, 1)]), ()) == 1.0


def test_a_job_may_make_no_progress_at_all(file):
    assert table(file).speed(job("z"), "k80") == 0.0


def test_a_job_alone_is_not_slowed_down(file):
    rates = PairRates(TOPOLOGY, PairsParams(table=file))
    own = job()
    own.allocation = Allocation([(A, 1)])
    stranger = job("n", index=1)
    stranger.allocation = Allocation([(A, 1)])  # on the same node, on a GPU of its own
    assert rates.rate(own, own.allocation, [stranger]) == 1.0
    assert rates.packs
    assert rates.neighbours


@pytest.mark.parametrize("node", [A, C])
def test_each_of_a_pair_has_its_own_speed(file, node):
    rates = PairRates(TOPOLOGY, PairsParams(table=file))
    host, guest = job("m", index=0), job("n", index=1)
    host.allocation = Allocation([(node, 1)])
    guest.allocation = as_guest(0, host.allocation)
    assert rates.rate(host, host.allocation, [guest]) == 0.5
    assert rates.rate(guest, guest.allocation, [host]) == 0.25
    assert set(rates.keys(host)) & set(rates.keys(guest))
    assert not set(rates.keys(host)) & set(rates.keys(job(index=2)))


def test_pairs_that_the_table_lacks_run_at_a_given_share(file):
    rates = PairRates(TOPOLOGY, PairsParams(table=file, unknown=0.3))
    assert rates.beside(job("n"), job("z"), "v100") == 0.3
    assert PairRates(TOPOLOGY, PairsParams(table=file)).beside(job("x"), job("y"), "v100") == 0.5
    assert rates.beside(job("z"), job("m"), "k80") == 0.0  # it makes no progress there alone


def test_speeds_of_several_models_are_multiplied(file):
    both = Product(
        [Types(TOPOLOGY), PairRates(TOPOLOGY, PairsParams(table=file)), Sharing(TOPOLOGY)]
    )
    slow = job("m", speeds={"k80": 0.2})
    assert both.packs
    assert both.speed(slow, "k80") == 0.2
    assert both.beside(slow, job("n"), "k80") == 0.5
    slow.allocation = Allocation([(C, 1)])
    assert both.keys(slow) == [-1, C]
    assert not Product([Types(TOPOLOGY), Locality(TOPOLOGY)]).packs


def test_a_guest_is_not_slower_because_it_holds_no_gpus_itself():
    guest = job(gpus=2, index=1)
    guest.allocation = as_guest(0, Allocation([(A, 2)]))
    assert Scaling(TOPOLOGY).rate(guest, guest.allocation, ()) == 1.0
    assert Sharing(TOPOLOGY).rate(guest, guest.allocation, ()) == 1.0


# --- files ----------------------------------------------------------------------------------------


def test_both_sides_of_a_pair_are_known(file):
    read = load_throughputs(file)
    assert read.gpu_types == ["v100", "k80"]
    assert read.pairs[("m", 1), ("n", 1)] == {"v100": 5.0, "k80": 1.0}
    assert read.pairs[("n", 1), ("m", 1)] == {"v100": 1.0, "k80": 1.0}
    assert read.scattered == {("m", 4): {"v100": 20.0, "k80": 8.0}}


def test_a_file_that_changed_is_read_again(tmp_path):
    path = tmp_path / "t.json"
    assert load_throughputs(write_table(path, {("m", 1): (1.0, 1.0)})).alone[("m", 1)]["v100"] == 1
    path.write_text('{"a100": {"(\'m\', 1)": {"null": 3}}}')
    os.utime(path, ns=(1, 1))
    assert load_throughputs(str(path)).alone == {("m", 1): {"a100": 3.0}}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("('ResNet-18 (batch size 16)', 1)", ("ResNet-18 (batch size 16)", 1)),
        ('("it\'s, well", 8)', ("it's, well", 8)),
    ],
)
def test_kinds_of_jobs(text, kind):
    assert parse_kind(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{", '{"v100": {"m": {"null": 1}}}', '{"v100": {"(\'m\', 1)": {}}}',
        '{"v100": {"(\'m\', 1)": {"null": 1, "(\'m\', 1)": [1]}}}',
    ],
)  # fmt: skip
def test_files_that_are_no_tables(tmp_path, text):
    with pytest.raises(ValueError, match=r"."):
        parse_throughputs(text.encode())
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(OptionError, match=r"bad\.json: is not a table of throughputs"):
        load_throughputs(str(path))


def test_options_that_are_wrong(file, tmp_path):
    with pytest.raises(OptionError, match=r"rates 'table': give the table .* table:table=FILE"):
        TableRates(TOPOLOGY)
    with pytest.raises(OptionError, match=r"rates 'pairs': give the table"):
        PairRates(TOPOLOGY)
    with pytest.raises(OptionError, match=r"no GPU type 'a100': give reference=TYPE.*v100, k80"):
        table(file, reference="a100")
    with pytest.raises(OptionError, match=r"cannot be read \(No such file"):
        table(str(tmp_path / "none.json"))
