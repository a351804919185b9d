"""How a run ended, from every mixture of records and states."""

import pytest

from rota.live.drivers.orders import describe_code
from rota.live.drivers.slurm.folders import End
from rota.live.drivers.slurm.layout import SeenJob
from rota.live.drivers.slurm.verdict import as_signal, judge, judge_requeued

OK, BAD, STOPPED, BROKEN = (
    End(1.0, 0, False, "run"),
    End(2.0, 3, False, "run"),
    End(3.0, 143, True, "run"),
    End(1.0, 4, False, "setup"),
)
SAVED = End(3.0, 0, True, "run")


def verdict(ends, state="", nodes=1, *, ending=False, signalled=False, code=0):
    job = SeenJob(id=1, state=state, code=code) if state else None
    status = judge("1.0", nodes, ends, job, ending=ending, signalled=signalled)
    return status and (status.state, status.code, status.asked)


@pytest.mark.parametrize(
    ("ends", "state", "nodes", "expected"),
    [
        ([OK], "COMPLETED", 1, ("ended", 0, False)),
        ([OK], "CANCELLED", 1, ("ended", 0, False)),  # Slurm had to be told of its end
        ([OK], "", 1, ("ended", 0, False)),
        ([BAD], "FAILED", 1, ("ended", 3, False)),
        ([BROKEN], "FAILED", 1, ("ended", 4, False)),
        ([BAD, STOPPED], "FAILED", 2, ("ended", 3, False)),  # the second was ended for the first
        ([BAD], "FAILED", 2, ("ended", 3, False)),
        ([STOPPED], "FAILED", 2, ("lost", 0, False)),  # a node died, and Slurm ended the rest
        ([], "FAILED", 2, ("lost", 0, False)),
        ([], "FAILED", 1, ("ended", -9, False)),
        ([], "NODE_FAIL", 1, ("lost", 0, False)),
        ([STOPPED, SAVED], "NODE_FAIL", 2, ("lost", 0, False)),
        ([OK], "NODE_FAIL", 1, ("ended", 0, False)),
        ([], "PREEMPTED", 1, ("lost", 0, False)),
        ([STOPPED], "TIMEOUT", 1, ("ended", -9, False)),
        ([STOPPED], "CANCELLED", 1, ("ended", -9, False)),
        ([], "COMPLETED", 1, None),
        ([], "", 1, None),
        ([OK], "", 2, None),
    ],
)
def test_what_ended_by_itself(ends, state, nodes, expected):
    assert verdict(ends, state, nodes, code=-9) == expected


@pytest.mark.parametrize(
    ("ends", "state", "signalled", "expected"),
    [
        ([SAVED], "COMPLETED", True, ("ended", 0, True)),
        ([STOPPED], "FAILED", True, ("ended", -15, True)),
        ([OK], "COMPLETED", True, ("ended", 0, False)),  # it was quicker
        ([BAD], "FAILED", True, ("ended", 3, False)),
        ([], "FAILED", True, ("ended", -9, True)),
        ([], "", True, ("ended", -9, True)),
        ([], "NODE_FAIL", True, ("ended", -9, True)),
    ],
)
def test_what_was_asked_to_end(ends, state, signalled, expected):
    assert verdict(ends, state, ending=True, signalled=signalled) == expected


@pytest.mark.parametrize(
    ("ends", "ending", "expected"),
    [
        ([], False, ("lost", 0, False)),
        ([STOPPED], False, ("lost", 0, False)),
        ([OK], False, ("ended", 0, False)),
        ([BAD], False, ("ended", 3, False)),
        ([], True, ("ended", -9, True)),
        ([SAVED], True, ("ended", 0, True)),
    ],
)
def test_what_slurm_has_requeued(ends, ending, expected):
    status = judge_requeued("1.0", 1, ends, ending=ending)
    assert (status.state, status.code, status.asked) == expected


def test_reasons_are_for_people():
    job = SeenJob(id=1, state="TIMEOUT")
    status = judge("1.0", 1, [], job, ending=False, signalled=False)
    assert status.why == "the time limit of its Slurm job is over"
    status = judge("1.0", 1, [BROKEN], None, ending=False, signalled=False)
    assert status.why == "setup failed: exit code 4"
    assert [as_signal(code) for code in (3, 128, 137, 143, 255)] == [3, 128, -9, -15, 255]
    assert describe_code(-9) == "killed by signal 9 (Killed)"
    assert describe_code(0) == ""
