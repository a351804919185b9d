"""The kit itself: policies that break a rule are caught, by the check that is meant for it."""

import subprocess
import sys
from itertools import count

import pytest

from rota.core.knowledge import Knowledge
from rota.core.policy import DecidePolicy, Params, PriorityPolicy
from rota.core.registry import POLICIES, load
from rota.testing import CheckFailed, check_policy
from rota.testing.policy_checks import CHECKS

Srtf = load(POLICIES, "srtf")


class Base(PriorityPolicy[Params]):
    """Serves in the order of submission, with preemption."""

    def key(self, job, now_s):
        return job.submit_s


class Peeks(Base):
    """Reads the truth behind the back of the accessors."""

    name = "peeks"

    def key(self, job, now_s):
        return job.true_work


class KnowsSpeeds(Base):
    """Reads behind the back of the accessors how fast jobs are."""

    name = "knows-speeds"

    def key(self, job, now_s):
        return -(job.truth.speeds or {}).get("", 1.0)


class Undeclared(Srtf):
    """Reads what it does not declare."""

    name = "undeclared"
    knowledge = Knowledge.NOTHING


class Restless(Base):
    """Its waiting jobs' keys change all the time."""

    name = "restless"

    def key(self, job, now_s):
        return job.submit_s if job.running else job.submit_s - now_s


class Slopes(Srtf):
    """Tells the wrong slope."""

    name = "slopes"

    def slope(self, job):
        return -2.0


class Moody(Base):
    """Remembers something from run to run."""

    name = "moody"
    ticks = count()

    def key(self, job, now_s):
        return next(self.ticks) % 7


class ByName(Base):
    """Prefers names late in the alphabet."""

    name = "by-name"

    def key(self, job, now_s):
        return -int(job.id.split("-")[-1].removeprefix("j"))


class Forgets(Base):
    """Keeps the order of first sight in a place that no snapshot has."""

    name = "forgets"

    def __init__(self, params=None):
        super().__init__(params)
        self.seen = {}

    def key(self, job, now_s):
        return -self.seen.setdefault(job.index, len(self.seen))


class Believes(Base):
    """Trusts the users' estimates without saying so."""

    name = "believes"

    def key(self, job, now_s):
        return job.spec.estimate_s


class Hoards(DecidePolicy[Params]):
    """Never serves the third job."""

    name = "hoards"

    def decide(self, view):
        plan = view.plan()
        plan.fill(job for job in view.jobs if job.index != 2)
        return plan


class Spins(DecidePolicy[Params]):
    """Wants to be asked at once, for ever."""

    name = "spins"

    def decide(self, view):
        plan = view.plan()
        plan.wake_at(view.now_s)
        return plan


class Timid(DecidePolicy[Params]):
    """Leaves a GPU free, just in case."""

    name = "timid"

    def decide(self, view):
        plan = view.plan()
        free = view.up_gpus - sum(job.gpus for job in view.running)
        for job in view.jobs:
            if job.running or len(view.running) == 0 or free > 1:
                free -= 0 if job.running else job.gpus
                plan.place(job)
        return plan


class Clocked(Base):
    """Counts in seconds."""

    name = "clocked"

    def key(self, job, now_s):
        return job.submit_s % 1700


CAUGHT = [
    (Peeks, "true_durations_stay_hidden", {}),
    (Undeclared, "one_job_runs_at_once", {}),
    (Restless, "its_keys_keep_their_promises", {}),
    (Slopes, "its_keys_keep_their_promises", {}),
    (Moody, "a_seed_gives_one_log", {}),
    (ByName, "names_do_not_matter", {}),
    (Forgets, "a_resumed_run_goes_on_alike", {}),
    (Believes, "estimates_stay_hidden", {}),
    (KnowsSpeeds, "speeds_stay_hidden", {}),
    (Hoards, "every_job_ends", {}),
    (Spins, "one_job_runs_at_once", {}),
    (Timid, "no_gpu_idles_while_somebody_waits", {"work_conserving": True}),
    (Clocked, "a_slower_clock_scales_everything", {"scale_free": True}),
]


@pytest.mark.parametrize(("policy", "check", "options"), CAUGHT)
def test_a_broken_policy_is_caught(policy, check, options):
    with pytest.raises(CheckFailed, match=f"policy {policy.name}: {check}"):
        check_policy(policy, only=check, **options)


def test_a_policy_without_a_name_is_caught():
    with pytest.raises(CheckFailed, match="it_names_itself"):
        check_policy(Base, only="names_itself")


def test_a_good_policy_of_ones_own_passes():
    class Mine(Srtf):
        """Serves the job that needs the least time to finish."""

        name = "mine"

    report = check_policy(Mine, seeds=range(2))
    assert len(report.passed) + len(report.skipped) == len(CHECKS)
    assert not set(report.passed) & set(report.skipped)


def test_a_failure_comes_with_its_smallest_example():
    with pytest.raises(CheckFailed) as caught:
        check_policy(Slopes, only="naive_engine")
    text = str(caught.value)
    assert "only expected" in text
    assert "Scenario(jobs=" in text
    assert text.count("Item(") <= 4


def test_the_kit_needs_no_test_tools():
    code = (
        "import sys, rota.testing; "
        "sys.exit(bool({'pytest', 'hypothesis', 'numpy', 'polars'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
