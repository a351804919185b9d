"""Names of tenants that only the cluster or only the jobs know, and parameters without effect."""

import pytest

from rota.core.errors import ClusterSpecError, OptionError
from rota.core.registry import unknown
from rota.core.tenants import Tenant, TenantTree
from rota.engine.parts import make_costs, make_policy
from rota.study.config import RunConfig
from rota.study.run import simulate

JOBS = "job_id,submit_s,num_gpus,duration_s,vc\na,0,1,10,vision\nb,1,1,10,speech\n"


@pytest.fixture
def run(tmp_path):
    """Return `run(cluster, jobs)`: a simulation with tenants in a cluster file."""

    def start(tenants, jobs=JOBS):
        (tmp_path / "jobs.csv").write_text(jobs)
        cluster = tmp_path / "cluster.yaml"
        cluster.write_text(f"nodes: [{{count: 1, gpus: 4}}]\ntenants: {tenants}\n")
        config = RunConfig(
            trace=str(tmp_path / "jobs.csv"), cluster=str(cluster), policy="capacity"
        )
        return simulate(config)

    return start


def test_a_mistyped_tenant_of_a_cluster_file_is_an_error_with_a_suggestion(run):
    message = r"no job is of the tenant 'visoin': did you mean 'vision', of which 1 jobs are"
    with pytest.raises(ClusterSpecError, match=message):
        run("[{name: visoin, quota: 2}, {name: speech, quota: 2}]")


def test_the_case_of_a_tenant_counts_and_is_suggested(run):
    with pytest.raises(ClusterSpecError, match="'Vision': did you mean 'vision'"):
        run("[{name: Vision, quota: 2}, {name: speech, quota: 2}]")


def test_tenants_without_jobs_and_jobs_without_tenants_are_noted(run):
    found = run("[{name: robots, quota: 2}, {name: speech, quota: 2}]").warnings
    assert any(
        "no job is of these tenants of cluster.yaml:" in note and "robots" in note for note in found
    )
    assert any("1 jobs are of tenants that" in note and "(vision)" in note for note in found)


def test_names_that_agree_are_not_mentioned(run):
    groups = "[{name: all}, {name: vision, parent: all, quota: 2}, {name: speech, parent: all}]"
    assert not [note for note in run(groups).warnings if "tenant" in note]


def test_a_mistyped_parent_is_suggested():
    with pytest.raises(ClusterSpecError, match="parent 'resaerch': did you mean 'research'"):
        TenantTree([Tenant("research"), Tenant("vision", "resaerch")])


def test_a_name_in_the_wrong_case_is_suggested():
    assert "did you mean 'fifo'?" in unknown("policy", "FIFO", ["easy", "fifo"])
    assert "did you mean 'fifo-skip'?" in unknown("policy", "Fifo_Skip", ["easy", "fifo-skip"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "hierarchical-fair:preset=slurm,victims=least-progress",
            r"victims=least-progress has no effect with reclaim=no and within=no \(preset=slurm\)",
        ),
        (
            "hierarchical-fair:preset=slurm,min_runtime_s=60",
            r"min_runtime_s=60.0 has no effect with reclaim=no and within=no \(preset=slurm\)",
        ),
        ("capacity:reclaim=no,ignore_over=0.2", "ignore_over=0.2 has no effect with reclaim=no"),
    ],
)
def test_a_parameter_that_a_preset_ignores_is_an_error(text, message):
    with pytest.raises(OptionError, match=message):
        make_policy(text)


@pytest.mark.parametrize(
    "text",
    [
        "hierarchical-fair:preset=slurm,victims=least-progress,reclaim=yes",
        "hierarchical-fair:preset=slurm,min_runtime_s=60,inside=srtf",
        "capacity:preset=yarn,ignore_over=0.2",
        "capacity:preset=yarn,victims=least-progress",
    ],
)
def test_a_parameter_that_a_preset_uses_is_not(text):
    make_policy(text)


@pytest.mark.parametrize("text", ["custom:slow_s=60", "pollux30:slow_factor=0.5"])
def test_half_of_a_slow_start_is_an_error(text):
    with pytest.raises(OptionError, match=r"has no effect with slow_factor=.*: give both"):
        make_costs(text)


def test_a_licence_that_nobody_declared_is_named_with_its_job_and_what_was_meant(tmp_path):
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,num_gpus,duration_s,resources\na,0,1,10,\nb,1,1,10,matlb=1\n"
    )
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes: [{count: 1, gpus: 4}]\nlicences: {matlab: 2}\n")
    config = RunConfig(trace=str(tmp_path / "jobs.csv"), cluster=str(cluster), policy="fifo")
    with pytest.raises(ClusterSpecError, match=r"job b asks for 'matlb'.* did you mean 'matlab'"):
        simulate(config)
    cluster.write_text("")
    with pytest.raises(ClusterSpecError, match="is empty: it needs at least one key"):
        simulate(config)
