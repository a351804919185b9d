"""How a run ended: from the records of its nodes, and from what Slurm says."""

import signal
from collections.abc import Sequence

from rota.live.driver import RunStatus
from rota.live.drivers.orders import describe_code
from rota.live.drivers.slurm.folders import End
from rota.live.drivers.slurm.layout import SIGNALLED, SeenJob

NOT_ITS_FAULT = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED")
BY_SLURM = {
    "TIMEOUT": "the time limit of its Slurm job is over",
    "DEADLINE": "the deadline of its Slurm job is over",
    "OUT_OF_MEMORY": "out of memory (Slurm)",
    "CANCELLED": "cancelled in Slurm",
}
TERMINATED, KILLED = -int(signal.SIGTERM), -int(signal.SIGKILL)


def judge(
    run: str, nodes: int, ends: Sequence[End], job: SeenJob | None, *, ending: bool, signalled: bool
) -> RunStatus | None:
    """What to tell of a run that is over.

    Args:
        run: Its id.
        nodes: On how many nodes it ran.
        ends: Records of the nodes, by time.
        job: The Slurm job; None if Slurm has forgotten it or has put it back into the queue.
        ending: Somebody wanted it to end.
        signalled: And a signal for it was sent.

    Returns:
        None: there is no record although there should be one; perhaps it comes late.
    """
    whole = len(ends) == nodes
    hit = any(end.asked for end in ends)
    if job is not None and job.state in NOT_ITS_FAULT and not ending and (hit or not whole):
        return RunStatus(run, "lost", why=f"{job.state.lower().replace('_', ' ')} (Slurm)")
    # what a signal of others ended ended for another reason than its own
    failed = next((end for end in ends if end.code and (ending or not end.asked)), None)
    asked = ending and (hit or (signalled and not whole))
    if failed is not None:
        code = as_signal(failed.code)
        setup = "setup failed: " if failed.phase == "setup" else ""
        return RunStatus(run, "ended", code, asked, setup + describe_code(code))
    if whole and (ending or not hit or job is None or job.state == "COMPLETED"):
        return RunStatus(run, "ended", 0, asked)
    if ending:
        return RunStatus(run, "ended", KILLED, asked=True, why="ended before it could tell how")
    return _by_slurm(run, nodes, job)


def _by_slurm(run: str, nodes: int, job: SeenJob | None) -> RunStatus | None:
    """Its nodes do not say how it ended: what does Slurm say?"""
    if job is None or job.state == "COMPLETED":
        return None
    if job.state == "FAILED" and nodes > 1:
        return RunStatus(run, "lost", why="a part of it is gone without a word: a node failed?")
    code = job.code or TERMINATED
    why = BY_SLURM.get(job.state, describe_code(code))
    return RunStatus(run, "ended", code, why=why, timed_out=job.state == "TIMEOUT")


def judge_requeued(run: str, nodes: int, ends: Sequence[End], *, ending: bool) -> RunStatus:
    """What to tell of a run whose Slurm job is back in the queue.

    Args:
        run: Its id.
        nodes: On how many nodes it ran.
        ends: Records of the nodes, by time.
        ending: Somebody wanted it to end.
    """
    whole = len(ends) == nodes
    if not ending and (not whole or any(end.asked for end in ends)):
        return RunStatus(run, "lost", why="Slurm has requeued it (a node failed?)")
    status = judge(run, nodes, ends, None, ending=ending, signalled=ending)
    return status or RunStatus(run, "lost", why="nobody knows how it ended")


def as_signal(code: int) -> int:
    """Minus the signal where a shell says 128 + signal."""
    return SIGNALLED - code if SIGNALLED < code <= SIGNALLED + signal.NSIG else code
