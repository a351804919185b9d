"""`check_admission`: what every admission must do.

from rota.testing import check_admission
check_admission("daytime.py")       # a file, a registered name, a class, or a function
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from rota.core.admission import Admission
from rota.core.jobs import DONE, FAILED, REJECTED
from rota.engine.loop import Engine
from rota.engine.parts import make_admission
from rota.engine.snapshot import freeze, restore
from rota.policies.fifo_skip import FifoSkip
from rota.testing.logs import entries
from rota.testing.scenario import Scenario, random_scenario, to_the_end
from rota.testing.subject import Report, must, run_checks, same

__all__ = ["check_admission"]

Maker = Callable[[], Admission]


class Door(msgspec.Struct):
    """The admission under test."""

    make: Maker
    seeds: tuple[int, ...]

    def scenarios(self) -> Iterator[Scenario]:
        """Random ones; the same for every check."""
        for seed in self.seeds:
            yield random_scenario(seed, unit_s=60, lossy=False)

    def engine(self, scenario: Scenario) -> Engine:
        """Of a run behind this admission."""
        return scenario.engine(FifoSkip(), admission=self.make())


def it_names_itself(door: Door) -> None:
    """A name, a docstring, and two of them are two."""
    admission = door.make()
    must(admission.name, "it has no name: set `name`")
    must(type(admission).__doc__, "the class needs a docstring")
    must(door.make() is not admission, "every run needs one of its own: make a new one each time")


def nobody_waits_at_the_door_for_ever(door: Door) -> None:
    """In the end every job is done, has failed or was refused with a message."""
    for scenario in door.scenarios():
        engine = to_the_end(door.engine(scenario))
        for job in engine.jobs.values():
            fails = job.truth.fails_at < job.true_work
            must(
                job.phase in (FAILED if fails else DONE, REJECTED),
                f"{job} did not end: `consider` must let it in at some time, or `refuse` say why "
                f"not\n  in {scenario}",
            )


def the_same_jobs_are_let_in_at_the_same_times(door: Door) -> None:
    """It decides by what it is told: two runs have the same log."""
    for scenario in door.scenarios():
        logs = []
        for _ in range(2):
            engine = to_the_end(door.engine(scenario))
            logs.append(entries(engine.log, engine.cluster.topology))
        same(logs[0], logs[1], scenario)


def it_goes_on_after_a_restart(door: Door) -> None:
    """Frozen anywhere, restored from plain data: the same log in the end."""
    for scenario in door.scenarios():
        engine = to_the_end(door.engine(scenario))
        whole = entries(engine.log, engine.cluster.topology)
        times = sorted({time_s for time_s, *_ in whole})
        for until_s in times[:: max(1, len(times) // 3)]:
            frozen = door.engine(scenario)
            frozen.run(until_s)
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(freeze(frozen)))
            resumed = door.engine(scenario)
            restore(resumed, state)
            to_the_end(resumed)
            same(entries(resumed.log, resumed.cluster.topology), whole, scenario)


def cancelled_jobs_block_nobody(door: Door) -> None:
    """Jobs that are cancelled at the door or inside do not keep others out."""
    for scenario in door.scenarios():
        engine = door.engine(scenario)
        engine.run(max(item.submit_s for item in scenario.jobs))
        for job in list(engine.view.active.values())[::2]:
            engine.cancel(job, None, engine.view.now_s)
        to_the_end(engine)
        must(not engine.view.active, f"never ended: {engine.view.jobs[:3]}\n  in {scenario}")


CHECKS = (
    it_names_itself,
    nobody_waits_at_the_door_for_ever,
    the_same_jobs_are_let_in_at_the_same_times,
    it_goes_on_after_a_restart,
    cancelled_jobs_block_nobody,
)


def check_admission(
    admission: str | Maker | type[Admission], *, seeds: Sequence[int] = range(8), only: str = ""
) -> Report:
    """Run all checks on an admission.

    Args:
        admission: As of `--admission` (`name:key=value,...` or a Python file), a class that needs
            no arguments, or a function that makes one.
        seeds: Random workloads to try; each takes some milliseconds per check.
        only: Only checks whose name contains this.

    Raises:
        CheckFailed: A check failed.
    """
    make: Maker
    if isinstance(admission, str):
        text = admission

        def make() -> Admission:
            return make_admission(text)

    else:
        make = admission
    chosen = [check for check in CHECKS if only in check.__name__]
    return run_checks(f"admission {make().name}", chosen, Door(make, tuple(seeds)))
