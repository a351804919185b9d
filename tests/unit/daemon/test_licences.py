"""Licences of a whole cluster under a daemon: asked for, waited for, changed, and kept."""

import pytest

from daemon_slow import Slow, state
from rota.core.errors import InputError
from rota.core.resources import licence
from rota.daemon.settings import read_settings
from rota.jobfile.model import JobFile, Resources

MATLAB = (licence("matlab", 1),)


def asks(gpus=1, **kinds):
    return JobFile(
        run="true", resources=Resources(gpus=gpus, kinds=kinds), envs={"PRETEND_S": "600"}
    )


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "rota.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("policy", ["fifo-skip", "srtf", "easy", "las"])
def test_the_second_waits_for_the_licence_and_gets_it_when_there_are_more(
    policy, running, written, alice, admin
):
    config = written(f"policy: {policy}\nlicences: {{matlab: 1}}\n")
    settings = read_settings(config, {})
    assert settings.resources == MATLAB
    with running(
        policy=policy, driver=Slow(), nodes=(2, 2), config=config, settings=settings,
        resources=settings.resources,
    ) as daemon:  # fmt: skip
        daemon.submit([asks(matlab=1), asks(matlab=1), asks()], alice)
        state(daemon, alice, "1", "RUNNING")
        state(daemon, alice, "3", "RUNNING")
        waits = daemon.job("2", alice)
        assert (waits.state, waits.reason) == ("PENDING", "capacity")
        use = {"total": 1.0, "used": 1.0, "spent": 0.0, "asked": 1.0, "waiting": ["2"]}
        assert daemon.status()["licences"] == {"matlab": use}
        assert "0 of 1 matlab are free, it asks for 1" in daemon.why("2", alice, runs=1).text
        written(f"policy: {policy}\nlicences: {{matlab: 2}}\n")
        (line,) = daemon.reload(admin)
        assert "matlab (unit licence, total 1.0) -> matlab (unit licence, total 2.0)" in line
        state(daemon, alice, "2", "RUNNING")
        written(f"policy: {policy}\nlicences: {{matlab: 1}}\n")
        daemon.reload(admin)
        daemon.submit([asks(matlab=1)], alice)
        assert daemon.job("4", alice).state == "PENDING"
    with running(policy=policy, nodes=(2, 2), resources=MATLAB) as daemon:
        assert [daemon.job(job, alice).state for job in "1234"] == [*["RUNNING"] * 3, "PENDING"]
        daemon.cancel("1", alice)
        state(daemon, alice, "1", "CANCELLED")
        assert daemon.job("4", alice).state == "PENDING"  # job 2 has the only one
        daemon.cancel("2", alice)
        state(daemon, alice, "4", "RUNNING")


def test_what_nobody_declared_is_refused_by_name(running, alice):
    with running(resources=MATLAB) as daemon:
        for kind in ("ansys", "cpu"):
            with pytest.raises(InputError, match=f"unknown resource '{kind}'.*known: .*matlab"):
                daemon.submit([asks(**{kind: 1})], alice)
        with pytest.raises(InputError, match="matlab 2: the cluster has 1 in all"):
            daemon.submit([asks(matlab=2)], alice)
        with pytest.raises(InputError, match="unknown resource 'ansys'"):
            daemon.why_new(asks(ansys=1), alice)
        assert not daemon.jobs(alice)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("licenses: {matlab: 1}\n", "did you mean 'licences'"),
        ("licences: [matlab]\n", "licences"),
        ("licences: {matlab: -1}\n", "resources.matlab: total is -1"),
        ("licences: {gpu: 1}\n", "resources.gpu: the name is taken"),
        ("resources: {net: {unit: Gb}}\n", "resources.net: total is missing"),
        ("resources: {net: {totl: 1}}\n", "totl"),
        ("resources: {m: {total: 1}}\nlicences: {m: 1}\n", "licences.m: it is under resources"),
    ],
)
def test_a_wrong_declaration_names_the_key(text, told, written):
    with pytest.raises(InputError, match=told):
        read_settings(written(text), {})
