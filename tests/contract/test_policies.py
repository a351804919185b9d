"""Every registered policy, found by its entry point: a new one needs no test file to be checked."""

import pytest

from rota.core.registry import POLICIES, load, names
from rota.testing import CheckFailed, check_policy
from rota.testing.policy_checks import CHECKS

CHECK_NAMES = [check.__name__ for check in CHECKS]
FEW = range(1)  # random workloads; `make soak` has forty


def variant(name, **params):
    kind = load(POLICIES, name)

    def make():
        return kind(kind.Parameters(**params))

    return make


VARIANTS = {
    "tiresias promote": variant("tiresias", limits=(3600.0, 7200.0), promote=2.0),
    "gittins given": variant("gittins", distribution=(600.0, 1200.0, 4800.0, 19200.0)),
    "gittins learning": variant("gittins", warmup=2),
    "qssf history": variant("qssf", estimate="history"),
    "qssf user": variant("qssf", estimate="user", strict=False),
    "gandiva turns": variant("gandiva", slice_s=300.0, pack=False, migrate=False, grow=False),
    "chronus refusing": variant("chronus", lease_s=300.0, declined="refuse"),
    "sjf strict": variant("sjf", strict=True),
    "drf preemptive": variant("drf", preemptive=True),
    "synergy las tune": variant("synergy", order="las", mechanism="tune"),
    "synergy srtf proportional": variant("synergy", order="srtf", mechanism="proportional"),
}


@pytest.mark.parametrize("policy", names(POLICIES))
def test_registered(policy):
    report = check_policy(policy, seeds=FEW)
    assert len(report.passed) + len(report.skipped) == len(CHECKS)


@pytest.mark.soak
@pytest.mark.parametrize("check", CHECK_NAMES)
@pytest.mark.parametrize("policy", names(POLICIES))
def test_registered_on_many_workloads(policy, check):
    check_policy(policy, only=check, seeds=range(40))


@pytest.mark.parametrize("policy", VARIANTS)
def test_variant(policy):
    report = check_policy(VARIANTS[policy], seeds=FEW)
    assert len(report.passed) + len(report.skipped) == len(CHECKS)


def test_there_are_policies():
    assert {"fifo", "srtf", "tiresias"} <= set(names(POLICIES))


def test_an_unknown_policy_is_named():
    with pytest.raises(Exception, match="did you mean 'fifo'"):
        check_policy("fifoo")


def test_the_report_names_what_was_checked():
    report = check_policy("fifo", only="job")
    assert "every_job_ends" in report.passed
    assert "policy fifo" in str(report)
    assert "passed   every_job_ends" in str(report)


def test_a_failure_names_policy_check_and_example():
    fifo = load(POLICIES, "fifo")

    class Forgetful(fifo):
        """Serves nobody who came at an odd second."""

        name = "forgetful"
        preemptive = True

        def key(self, job, now_s):
            return (job.submit_s % 2, now_s)

    with pytest.raises(CheckFailed, match=r"policy forgetful: .*_"):
        check_policy(Forgetful)
