"""Whatever is killed: no job is lost, doubled or left behind, and no two runs of it overlap."""

import json
import signal

import pytest

from agents_net import eventually
from daemon_process import PATIENCE_S, ServedProcess
from killed_cluster import killed_cluster

SOAK = [pytest.mark.soak, pytest.mark.timeout(6 * 3600)]


@pytest.mark.parametrize(
    ("jobs", "kills", "seed"),
    [
        (12, 12, 1),
        pytest.param(300, 150, 4, marks=SOAK),
        pytest.param(2000, 1000, 2, marks=SOAK),
    ],
)
def test_kills_on_a_file_cost_nothing(tmp_path, jobs, kills, seed):
    with killed_cluster(tmp_path) as cluster:
        cluster.suffer(jobs, kills, seed=seed)
        cluster.check()
        assert sum(cluster.kills.values()) >= kills


@pytest.mark.parametrize(
    ("jobs", "kills", "seed"),
    [pytest.param(300, 150, 5, marks=SOAK), pytest.param(2000, 1000, 3, marks=SOAK)],
)
def test_kills_on_a_database_cost_nothing(tmp_path, database, jobs, kills, seed):
    with killed_cluster(tmp_path, database=database) as cluster:
        cluster.suffer(jobs, kills, seed=seed)
        cluster.check()
        assert sum(cluster.kills.values()) >= kills


@pytest.mark.parametrize(
    "failovers", [3, pytest.param(10, marks=SOAK), pytest.param(50, marks=SOAK)]
)
def test_another_daemon_takes_over_and_no_job_notices(tmp_path, database, failovers):
    with killed_cluster(tmp_path, database=database) as cluster:
        for number in range(failovers):
            for job in range(4):
                cluster.submit(f"j{number}-{job}", 0.5 + job)
            cluster.fail_over((signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)[number % 3])
        cluster.check()
        runs = cluster.lines("runs")
        assert len(runs) == len(cluster.submitted)  # nothing had to begin again


def test_with_certificates_machines_and_clients_find_the_next_leader(tmp_path, database):
    with killed_cluster(tmp_path, database=database, secure=True) as cluster:
        cluster.submit("before", 1)
        cluster.fail_over(signal.SIGKILL)
        cluster.submit("after", 0.1)
        cluster.check()
        assert len(cluster.lines("runs")) == len(cluster.submitted)
        stranger = ServedProcess(
            tmp_path / "stranger.log", "serve", "--state", tmp_path / "strange",
            "--config", cluster.config, "--listen", "127.0.0.1:0",
        )  # fmt: skip
        assert stranger.process.wait(300) == 2
        assert "are of another authority: copy its tls/ca.pem" in stranger.text()
        agent = cluster.agents["n0"]
        assert agent.stop() == 0
        cluster.start_agent("n0")  # with the certificate that it has
        cluster.submit("last", 0.1)
        cluster.check()


def test_a_database_that_was_put_back_is_refused_and_ends_nothing_unasked(
    tmp_path, postgres_server, database
):
    """What a daemon's seal knows, also of one that only stood by, and an older copy does not."""
    with killed_cluster(tmp_path, database=database) as cluster:
        cluster.daemons[1].stop()
        cluster.daemons[1] = None
        cluster.submit("old", 0.01)
        cluster.check()
        cluster.daemons[0].stop()
        copy = postgres_server.copy(database)
        cluster.start_daemon(0)
        eventually(cluster.answers)
        cluster.submit("lost", 300)
        running = cluster.submitted["lost"]
        eventually(lambda: cluster.client.job(running).state == "RUNNING")
        eventually(lambda: len(cluster.lines("runs")) == 2)
        still = set(cluster.orphans())
        cluster.start_daemon(1)  # it never leads
        seal = cluster.state(1) / "rota.seal"
        eventually(lambda: seal.exists() and json.loads(seal.read_text() or "{}").get("jobs") == 2)
        cluster.daemons[1].stop()
        cluster.daemons[0].stop()
        postgres_server.put_back(database, copy)
        for number in (1, 0):
            cluster.start_daemon(number)
            refused = cluster.daemons[number]
            assert refused.process.wait(PATIENCE_S) == 2
            assert "went back in time: missing: 1 of 2 jobs" in refused.text()
            assert "--accept-loss" in refused.text()
        cluster.daemons[1] = None
        assert set(cluster.orphans()) == still  # it goes on
        cluster.start_daemon(0, "--accept-loss")
        eventually(cluster.answers)
        eventually(lambda: not cluster.orphans())  # nobody knows it: it was accepted that it ends
        del cluster.submitted["lost"]
        cluster.submit("next", 0.01)
        assert int(cluster.submitted["next"]) > int(running)
        eventually(lambda: not list(cluster.client.jobs(active=True)))
        assert {job.name: job.state for job in cluster.client.jobs()} == {
            "old": "SUCCEEDED", "next": "SUCCEEDED",
        }  # fmt: skip
        cluster.daemons[0].stop()
        cluster.start_daemon(0)  # it was accepted once and for all
        eventually(cluster.answers)
        postgres_server.drop(copy)
