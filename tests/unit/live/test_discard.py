"""Folders of jobs that ended long ago: the agent asks, the daemon knows, the agent removes."""

import os

import pytest

from rota.core.topology import NodeSpec
from rota.live.agent import agent as agent_module
from rota.live.agent.agent import Agent
from rota.live.agent.messages import MOST_STALE, AgentNode, AgentReport
from rota.live.drivers.local.driver import AgentDriver


@pytest.fixture
def agent(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_module, "SOON_STALE_S", 0.0)
    made = Agent(tmp_path / "agent", [AgentNode(NodeSpec("n0", 1), devices=("0",))])
    yield made
    made.close()


def folders(agent, jobs, age_s):
    for job in jobs:
        agent.root.job_folders(job)
        top = agent.root.jobs / job
        at = top.stat().st_mtime - age_s
        os.utime(top, (at, at))


def sync(driver, agent):
    agent.obey(driver.sync(agent.report(), 0.0))


def test_what_ended_long_ago_is_removed_and_nothing_else(agent):
    folders(agent, ["1", "2"], age_s=86_400)
    folders(agent, ["3"], age_s=0)
    asked = []

    def expired(jobs):
        asked.append(tuple(jobs))
        return [job for job in jobs if job != "2"]  # which is not over

    driver = AgentDriver()
    driver.expired = expired
    driver.open(lambda _: None)
    try:
        sync(driver, agent)
        sync(driver, agent)
    finally:
        driver.close()
    assert asked[0] == ("1", "2")
    names = {entry.name for entry in agent.root.jobs.iterdir() if not entry.name.startswith(".")}
    assert names == {"2", "3"}


def test_all_are_asked_about_in_turn(agent):
    jobs = [str(number) for number in range(1, MOST_STALE + 11)]
    folders(agent, jobs, age_s=86_400)
    assert agent.report().stale == tuple(jobs[:MOST_STALE])
    assert agent.report().stale == tuple(jobs[MOST_STALE:])
    assert agent.report().stale == ()
    assert agent.report().stale == (), "and then not for a while"


def test_a_daemon_that_keeps_everything_discards_nothing(agent):
    folders(agent, ["1"], age_s=86_400)
    driver = AgentDriver()
    driver.open(lambda _: None)
    try:
        sync(driver, agent)
    finally:
        driver.close()
    assert (agent.root.jobs / "1").exists()


def test_a_report_names_few():
    report = AgentReport("a", "a", 1, 1, (), stale=("1",) * (MOST_STALE + 1))
    assert "too many stale jobs" in report.problem()
    assert "too many stale jobs" in AgentReport("a", "a", 1, 1, (), stale=("1" * 200,)).problem()
