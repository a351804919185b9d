"""The files in `examples/` are what they claim to be."""

import re
import runpy
import shutil
import subprocess
import sys
from itertools import product

import pytest

from needs import need
from rota.cli.app import rota
from rota.core.jobs import Request, Shape
from rota.core.policy import Policy
from rota.core.topology import NodeSpec, Topology
from rota.daemon.settings import LocalSettings, Settings, SlurmSettings, read_settings
from rota.engine.parts import policy_class
from rota.placement.room import WHOLE
from rota.study.config import RunConfig
from rota.study.run import simulate
from rota.testing import check_admission, check_placement, check_policy
from shared_data import CHECKOUT

EXAMPLES = CHECKOUT / "examples"
POLICIES = ["aged_size.py", "aged_size_general.py", "elastic_fifo.py", "fewest_first.py"]
PLACEMENTS = ["fullest_node.py", "last_fit.py"]
ADMISSIONS = ["small_first.py"]


def test_every_example_is_tested():
    found = sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert found == sorted(POLICIES + PLACEMENTS + ADMISSIONS)


@pytest.mark.parametrize("name", POLICIES)
def test_an_example_of_a_policy_passes_all_checks(name):
    kind = policy_class(str(EXAMPLES / name))
    assert issubclass(kind, Policy)
    assert len(check_policy(kind).passed) > 15


@pytest.mark.parametrize("name", ["aged_size.py", "elastic_fifo.py", "fullest_node.py"])
def test_a_first_part_is_a_short_file(name):
    """What a newcomer writes first: a policy, an elastic one, a scored placement."""
    assert len((EXAMPLES / name).read_text().splitlines()) <= 30


def test_the_elastic_example_resizes_jobs(tmp_path):
    jobs = [("a", 0, 1, 4), ("b", 10, 2, 8)]
    rows = [f"{name},{at},2,60,{least},{most}" for name, at, least, most in jobs]
    trace = tmp_path / "jobs.csv"
    trace.write_text("\n".join(["job_id,submit_s,num_gpus,duration_s,min_gpus,max_gpus", *rows]))
    result = simulate(
        RunConfig(
            trace=str(trace), cluster="1x8", policy=str(EXAMPLES / "elastic_fifo.py"),
            rates="scaling", check=True,
        )
    )  # fmt: skip
    assert dict(result.jobs.select("job_id", "end_s").iter_rows()) == {"a": 30.0, "b": 35.0}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_an_example_of_a_placement_passes_all_checks(name):
    assert len(check_placement(str(EXAMPLES / name), seeds=range(2)).passed) == 8


@pytest.mark.parametrize("name", ADMISSIONS)
def test_an_example_of_an_admission_passes_all_checks(name):
    assert len(check_admission(str(EXAMPLES / name), seeds=range(4)).passed) == 5


@pytest.mark.parametrize("name", POLICIES + PLACEMENTS + ADMISSIONS)
def test_an_example_is_shown_on_a_page(name):
    pages = [page.read_text() for page in (CHECKOUT / "docs").rglob("*.md")]
    assert any(f"literalinclude}} ../../examples/{name}" in page for page in pages)


def test_an_example_of_a_placement_keeps_its_promises():
    kind = runpy.run_path(str(EXAMPLES / "last_fit.py"))["LastFit"]
    topology = Topology([NodeSpec(f"n{i}", gpus) for i, gpus in enumerate((4, 2, 4))])
    shapes = [Shape(gpus, Request.of(gpus)) for gpus in range(1, 11)]
    for used in product(range(5), range(3), range(5)):
        placement = kind(topology)
        for position, gpus in enumerate(used):
            placement.room.change(position, WHOLE, -gpus)
        for shape in shapes:
            choice = placement.choose(shape, placement.room, None)
            assert placement.feasible(shape, placement.room) == (choice is not None)
            assert choice is None or sum(gpus for _, gpus in choice) == shape.gpus
            assert all(placement.room.gpus[node] >= gpus for node, gpus in choice or ())


def test_the_example_of_a_configuration_names_every_key_that_has_no_table_of_its_own():
    path = EXAMPLES / "rota.yaml"
    settings = read_settings(path, {})
    named = set(re.findall(r"^(?:# )?(\w+):", path.read_text(), re.MULTILINE))
    assert settings.policy == "tiresias"
    assert [queue.name for queue in settings.queues] == ["research", "production", "students"]
    assert set(Settings.__struct_fields__) - named == {"seed", "slurm", "kubernetes", "ray"}


def test_the_example_of_a_configuration_states_defaults_where_it_says_nothing_else():
    settings = read_settings(EXAMPLES / "rota.yaml", {})
    assert (settings.local, settings.slurm) == (LocalSettings(), SlurmSettings())
    changed = {"policy", "queues", "log_json"}
    for name in set(Settings.__struct_fields__) - changed:
        assert getattr(settings, name) == getattr(Settings(), name)


@pytest.mark.parametrize("unit", ["rota.service", "rota-agent.service"])
def test_the_command_of_a_systemd_unit_exists(unit):
    text = (EXAMPLES / "systemd" / unit).read_text()
    command, *options = re.search(r"^ExecStart=/opt/rota/bin/rota (.+)$", text, re.MULTILINE)[
        1
    ].split()
    known = {name for param in rota.get_command(None, command).params for name in param.opts}
    assert "KillMode=process" in text.splitlines()
    assert {option for option in options if option.startswith("--")} <= known


def test_systemd_understands_the_units(tmp_path):
    need(shutil.which("systemd-analyze"), "systemd-analyze", "sudo make system-deps")
    units = []
    for unit in sorted((EXAMPLES / "systemd").iterdir()):
        text = unit.read_text()  # as on a machine where it is installed
        text = text.replace("/opt/rota/bin/rota", sys.executable).replace("User=rota", "User=root")
        units.append(tmp_path / unit.name)
        units[-1].write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
