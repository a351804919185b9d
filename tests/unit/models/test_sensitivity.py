"""Jobs that are slower with fewer CPUs or less memory."""

import json

import pytest

from rota.core.allocation import Allocation
from rota.core.errors import OptionError
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.core.sensitivity import Sensitivity
from rota.core.topology import NodeSpec, Topology
from rota.models.sensitivity import HostSensitivity, SensitivityParams, read_profiles

TABLE = Sensitivity((1, 3, 9), (10, 50), ((0.2, 0.4), (0.5, 1.0), (0.5, 2.0)))
NODES = [NodeSpec("a", 8, cpus=24, mem_gib=400), NodeSpec("b", 8, cpus=24, mem_gib=400)]


def asking(gpus, cpus, mem_gib, model="", **behaviour):
    request = Request.of(gpus, cpus=cpus, mem_gib=mem_gib)
    spec = JobSpec("j", 0.0, request, model=model)
    return Job(spec, Behaviour(100.0, **behaviour), 0, Shape(0, request))


def holding(topology, gpus, cpus, mem_gib):
    """Spread over both nodes."""
    nodes = [node.id for node in topology.nodes]
    extra = [(node, kind, part / 2) for node in nodes for kind, part in
             (("cpu", cpus), ("memory", mem_gib))]  # fmt: skip
    return Allocation([(node, gpus / 2) for node in nodes], extra)


def rate(job, gpus, cpus, mem_gib, nodes=NODES, **params):
    topology = Topology(nodes)
    model = HostSensitivity(topology, SensitivityParams(**params))
    return model.rate(job, holding(topology, gpus, cpus, mem_gib), ())


@pytest.mark.parametrize(
    ("cpus", "mem_gib", "expected"),
    [
        (36, 200, 1.0),  # all that it asks for
        (12, 200, 0.5),  # 3 CPUs for each of 4 GPUs: speed 1 instead of 2
        (12, 40, 0.25),
        (24, 200, 0.75),
    ],
)
def test_the_rate_is_the_speed_relative_to_that_of_the_request(cpus, mem_gib, expected):
    job = asking(4, 36, 200, sensitivity=TABLE)
    assert rate(job, 4, cpus, mem_gib) == pytest.approx(expected)


def test_without_a_table_the_scarcest_decides():
    job = asking(4, 40, 200)
    assert rate(job, 4, 20, 200) == 0.5
    assert rate(job, 4, 20, 50) == 0.25
    assert rate(job, 4, 80, 400) == 1.0
    assert rate(asking(4, 0, 0), 4, 0, 0) == 1.0


def test_what_the_cluster_does_not_declare_is_never_scarce():
    plain = [NodeSpec("a", 8), NodeSpec("b", 8)]
    assert rate(asking(4, 40, 200), 4, 0, 0, nodes=plain) == 1.0
    without_memory = [NodeSpec("a", 8, cpus=24), NodeSpec("b", 8, cpus=24)]
    assert rate(asking(4, 40, 200), 4, 20, 0, nodes=without_memory) == 0.5
    job = asking(4, 36, 200, sensitivity=TABLE)
    assert rate(job, 4, 12, 0, nodes=without_memory) == 0.5


@pytest.fixture
def profiles(tmp_path):
    """Return `profiles(content)`: the path of a file with it."""

    def write(content):
        path = tmp_path / "profiles.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


PROFILE = {
    "cpus": 9, "mem": 50, "iter_time": 0.5, "cpu_points": [1, 3, 9], "mem_points": [10, 50],
    "tput": [[0.2, 0.4], [0.5, 1.0], [0.5, 2.0]],
}  # fmt: skip


def test_profiles_are_found_by_model(profiles):
    path = profiles({"small_net_1": PROFILE, "small_net_4": {"gpus": 4}, "other": PROFILE})
    read = read_profiles(path)
    assert sorted(read) == ["other", "small_net"]
    assert (read["other"].cpus, read["other"].mem_gib) == (9, 50)
    assert read["other"].sensitivity == Sensitivity(
        TABLE.cpus, TABLE.mem_gib, TABLE.rates, step_s=0.5
    )
    known = asking(4, 36, 200, model="small_net")
    assert rate(known, 4, 12, 200, profiles=path) == 0.5
    assert rate(asking(4, 36, 200, model="none"), 4, 12, 200, profiles=path) == pytest.approx(1 / 3)
    slow = Sensitivity((1, 9), (1,), ((0.1,), (1.0,)))
    own = asking(4, 36, 200, model="small_net", sensitivity=slow)
    assert rate(own, 4, 4, 200, profiles=path) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not a JSON object of models"),
        ([1], "is not a JSON object of models"),
        ({"net_1": {"cpus": 1}}, "net_1: Object missing required field `tput`"),
        ({"net": PROFILE | {"tput": [[1, 1]]}}, "net: a table needs a row for each"),
    ],
)
def test_a_bad_file_is_named_with_the_model(profiles, content, says):
    with pytest.raises(OptionError, match=says):
        read_profiles(profiles(content))


def test_a_missing_file_is_named():
    with pytest.raises(OptionError, match=r"no-such\.json: cannot be read"):
        HostSensitivity(Topology(NODES), SensitivityParams(profiles="no-such.json"))
