"""The description of a sweep: what it may say, and what it is told when it says something else."""

from pathlib import Path

import pytest

from rota.core.errors import InputError
from rota.study.sweep.matrix import make_cells
from rota.study.sweep.plan import make_plan
from rota.study.sweep.source import parse_source, read_source
from rota.study.sweep.spec import parse_spec
from shared_data import CHECKOUT

LEAST = """\
workloads: [jobs.csv]
clusters: [1x8]
policies: [fifo, srtf]
"""


@pytest.fixture
def parse(trace):
    """Return `parse(more)`: the spec of the least sweep with more lines."""

    def make(more="", least=LEAST):
        return parse_spec(parse_source(least + more, trace.parent / "sweep.yaml"))

    return make


def labels(spec, *axes):
    return [tuple(cell.labels[axis] for axis in axes) for cell in make_cells(spec)]


def test_the_least_that_a_sweep_can_say(parse):
    spec = parse()
    assert spec.name == "sweep"
    assert spec.baseline == "fifo"
    assert spec.axes == ["workload", "cluster", "policy", "seed"]
    assert labels(spec, *spec.axes) == [
        ("jobs.csv", "1x8", "fifo", 0),
        ("jobs.csv", "1x8", "srtf", 0),
    ]


def test_the_last_axis_changes_fastest(parse):
    spec = parse("parameters: {costs: [zero, pollux30]}\nloads: [0.5, 2]\nseeds: [3, 1]\n")
    assert spec.axes == ["workload", "cluster", "policy", "costs", "load", "seed"]
    found = labels(spec, "policy", "costs", "load", "seed")
    assert len(found) == 16
    assert found[:5] == [
        ("fifo", "zero", 0.5, 3),
        ("fifo", "zero", 0.5, 1),
        ("fifo", "zero", 2.0, 3),
        ("fifo", "zero", 2.0, 1),
        ("fifo", "pollux30", 0.5, 3),
    ]


def test_values_of_options_are_taken_as_a_run_wants_them(parse):
    spec = parse(
        "parameters: {estimate_error: [null, 0.5, 'cv=1,bias=0.1'], round: [300]}\n"
        "options: {check: true}\n"
    )
    options = [cell.options for cell in make_cells(spec)][:3]
    assert [entry["estimate_error"] for entry in options] == [None, "cv=0.5", "cv=1,bias=0.1"]
    assert [(entry["round"], entry["check"]) for entry in options] == [("300", True)] * 3


def test_a_bundle_changes_several_options_together(parse):
    spec = parse("parameters:\n  failures:\n    none: {}\n    often: {mtbf: 10, mttr: 1}\n")
    cells = make_cells(spec)[:2]
    assert [cell.labels["failures"] for cell in cells] == ["none", "often"]
    assert "mtbf" not in cells[0].options
    assert (cells[1].options["mtbf"], cells[1].options["mttr"]) == (10, 1)


def test_without_failures_the_time_to_repair_is_no_question(parse, tmp_path):
    spec = parse("parameters: {mtbf: [null, 10]}\noptions: {mttr: 1}\n")
    plan = make_plan(spec, tmp_path / "workloads")
    assert [task.config.mttr for task in plan.tasks] == [None, 1, None, 1]


def test_policies_may_bring_options(parse):
    spec = parse("", LEAST.replace("srtf", "{name: theirs, policy: las, like: tiresias}"))
    cell = make_cells(spec)[1]
    assert cell.labels["policy"] == "theirs"
    assert (cell.options["policy"], cell.options["like"]) == ("las", "tiresias")


def test_excluded_cells_are_left_out(parse):
    spec = parse("loads: [0.5, 1, 2]\nexclude: [{policy: srtf, load: 1}, {load: 2.0}]\n")
    assert labels(spec, "policy", "load") == [("fifo", 0.5), ("fifo", 1.0), ("srtf", 0.5)]


def test_included_cells_are_added_once_with_every_value_of_the_axes_not_named(parse):
    spec = parse(
        "seeds: 2\nexclude: [{policy: srtf}]\n"
        "include: [{policy: srtf, seed: 1}, {policy: las, costs: pollux30}, {policy: fifo}]\n"
    )
    assert spec.axes == ["workload", "cluster", "policy", "costs", "seed"]
    assert labels(spec, "policy", "costs", "seed") == [
        ("fifo", None, 0),
        ("fifo", None, 1),
        ("srtf", None, 1),
        ("las", "pollux30", 0),
        ("las", "pollux30", 1),
    ]


def test_a_generator_is_drawn_for_every_seed_and_load(parse, tmp_path):
    spec = parse(
        "seeds: 2\nloads: [0.5, 0.9]\n",
        "workloads: ['poisson:jobs=50,mean_s=600', {name: g, generate: gavel-like, jobs: 9}]\n"
        "clusters: [1x8]\npolicies: fifo\n",
    )
    tasks = make_plan(spec, tmp_path / "workloads").tasks
    assert [(task.config.trace, task.config.seed) for task in tasks[:3]] == [
        ("generate:poisson:jobs=50,load=0.5,mean_s=600", 0),
        ("generate:poisson:jobs=50,load=0.5,mean_s=600", 1),
        ("generate:poisson:jobs=50,load=0.9,mean_s=600", 0),
    ]
    assert tasks[4].config.trace == "generate:gavel-like:jobs=9,load=0.5"
    assert len({task.key for task in tasks}) == 8


WRONG = {
    "polices: [x]": "line 4: the sweep: unknown key 'polices': did you mean 'policies'?",
    "seeds: -1": "line 4: seeds -1: give how many",
    "seeds: [1, 1]": "seeds [1, 1]: give how many (at most 100,000), or different numbers",
    "seeds: 100000000": "seeds 100000000: give how many (at most 100,000)",
    "seeds: 100000\nloads: [1, 2, 3, 4, 5, 6]": "1,200,000 cells",
    "exclude: [{policy: lass}]": "line 4: no cell has policy: lass: correct the values",
    "loads: [0.5, 0]": "line 4: loads[1]: 0 is not a number above 0",
    "loads: [1, 1.0]": "one is there twice",
    "keep: some": "keep 'some': give all, jobs or summary",
    "baseline: las": "baseline 'las' is no policy of the sweep: fifo, srtf",
    "options: {cost: zero}": "options: unknown option 'cost': did you mean 'costs'?",
    "options: {mtbf: often}": "line 4: options.mtbf: 'often' cannot be used",
    "parameters: {cost: [zero]}": "parameters: unknown option 'cost': did you mean 'costs'?",
    "parameters: {costs: []}": "parameters.costs has no values",
    "parameters: {costs: [zero, zero]}": "'zero' is there twice",
    "parameters: {costs: [[zero]]}": "parameters.costs[0] is ['zero']: give one value",
    "parameters: {policy: [fifo]}": "unknown option 'policy'",
    "parameters:\n  a: {x: {costs: zero}}\n  costs: [zero]": "'a' and 'costs' both set 'costs'",
    "exclude: [{polic: fifo}]": "exclude[0]: unknown axis 'polic': did you mean 'policy'?",
    "exclude: {policy: fifo}": "give a list of partial cells",
    "exclude: [{policy: fifo}, {policy: srtf}]": "every cell is excluded",
    "include: [{policy: [las]}]": "policy is ['las']: give one value",
    "include: [{seed: one}]": "seed 'one': give a whole number",
    "parameters: {a: {x: {}}}\ninclude: [{a: y}]": "a 'y' is not in parameters.a: it has x",
    "options: {like: blox}\nworkloads: [a.csv]": "line 5: workloads is given twice",
    "seeds: [": "is not YAML",
    "include: [{cluster: 8}]": "cluster is 8: give a text",
}


@pytest.mark.parametrize("more", WRONG)
def test_what_is_wrong_is_said_with_its_place_and_a_remedy(parse, more):
    with pytest.raises(InputError) as error:
        make_cells(parse(more + "\n"))
    assert WRONG[more] in str(error.value)
    assert str(error.value).startswith(str(parse().source.base))


WRONG_WORKLOADS = {
    "other.csv": "there is no file",
    "poisson": "says not how many jobs: add jobs: 500",
    "poisson:jobs=many": "invalid literal",
    "{generate: poisson, file: jobs.csv}": "give either 'file' or 'generate'",
    "{file: jobs.csv, jobs: 5}": "use 'limit'",
    "{generate: poisson, jobs: 5, limit: 5}": "use 'jobs'",
    "{file: jobs.csv, limit: few}": "workloads[0]: Expected `int",
    "{fil: jobs.csv}": "unknown key 'fil': did you mean 'file'?",
    "jobs.csv, jobs.csv": "'jobs.csv' is there twice: give one of them another name",
}


@pytest.mark.parametrize("entry", WRONG_WORKLOADS)
def test_a_wrong_workload_is_refused(parse, entry):
    with pytest.raises(InputError) as error:
        parse("", LEAST.replace("jobs.csv", entry))
    assert WRONG_WORKLOADS[entry] in str(error.value)


UNUSABLE = {
    "policies: [fifo, srtff]": "policy=srtff, seed=0: unknown policy 'srtff': did you mean 'srtf'?",
    "policies: [missing.py]": "missing.py",
    "clusters: [eight]": "cluster 'eight' is not understood",
    "options: {costs: dear}": "unknown cost model 'dear'",
    "options: {placement: nowhere}": "unknown placement 'nowhere'",
    "options: {mtbf: 5}": "mtbf and mttr belong together",
    "options: {round: often}": "is not a length in seconds",
    "options: {like: blox, admission: accept-all}": "leave --admission out",
    "workloads: [{file: jobs.csv, format: philly}]": "jobs.csv",
    "workloads: ['poisson:jobs=50,sizes=1:x']": "sizes=1:x is not understood",
}


@pytest.mark.parametrize("line", UNUSABLE)
def test_everything_is_tried_before_the_first_run(trace, tmp_path, line):
    key = line.partition(":")[0]
    kept = [old for old in LEAST.splitlines() if not old.startswith(key)]
    text = "\n".join([*kept, line])
    spec = parse_spec(parse_source(text, trace.parent / "sweep.yaml"))
    with pytest.raises(InputError) as error:
        make_plan(spec, tmp_path / "workloads")
    assert UNUSABLE[line] in str(error.value)
    assert "sweep.yaml: workload=" in str(error.value)


def test_paths_start_at_the_folder_of_the_description(trace, tmp_path, monkeypatch):
    (trace.parent / "one.yaml").write_text("nodes: 1x8\n")
    (trace.parent / "fifo").write_text("a file that happens to have the name of a policy\n")
    monkeypatch.chdir("/")
    text = LEAST.replace("1x8", "one.yaml")
    plan = make_plan(
        parse_spec(parse_source(text, trace.parent / "sweep.yaml")), tmp_path / "workloads"
    )
    config = plan.tasks[0].config
    assert Path(config.trace) == trace.resolve()
    assert Path(config.cluster) == (trace.parent / "one.yaml").resolve()
    assert config.policy == "fifo"


def test_a_list_may_not_contain_itself(trace):
    with pytest.raises(InputError, match="refers to itself"):
        parse_source("workloads: &a [*a]\n", trace.parent / "sweep.yaml")


def test_the_example_is_a_sweep(tmp_path):
    spec = parse_spec(read_source(CHECKOUT / "examples" / "sweeps" / "loads.yaml"))
    plan = make_plan(spec, tmp_path / "workloads")
    assert len(plan.tasks) == 5 * 3 * 3 + 3
    assert spec.axes == [
        "workload", "cluster", "policy", "costs", "estimate_error", "load", "seed"
    ]  # fmt: skip
