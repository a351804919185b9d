"""Placements and admissions in files of one's own, and the kit that checks them."""

from itertools import count as counting
from pathlib import Path

import pytest

from rota.cli.app import run
from rota.core.admission import Admission
from rota.core.errors import OptionError
from rota.core.reasons import Reason
from rota.core.registry import ADMISSIONS, names
from rota.core.topology import Topology
from rota.engine.parts import make_admission, make_placement
from rota.placement.base import Verified
from rota.placement.first_fit import FirstFit
from rota.policies.admission.accept_all import AcceptAll
from rota.testing import CheckFailed, check_admission, check_placement, check_policy

EXAMPLES = Path(__file__).parents[3] / "examples"
LAST_FIT = str(EXAMPLES / "last_fit.py")
SMALL_FIRST = str(EXAMPLES / "small_first.py")
JOBS = "job_id,submit_s,num_gpus,duration_s\na,0,4,10\nb,1,4,10\nc,2,1,10\n"


def test_a_placement_and_an_admission_in_files_are_used(tmp_path, capsys):
    (tmp_path / "jobs.csv").write_text(JOBS)
    args = ["simulate", str(tmp_path / "jobs.csv"), "--cluster", "2x4", "--policy", "fifo-skip"]
    args += ["--placement", LAST_FIT, "--admission", f"{SMALL_FIRST}:large=0.25", "--check"]
    assert run([*args, "-o", str(tmp_path / "out")]) == 0
    rows = (tmp_path / "out" / "jobs.csv").read_text().splitlines()[1:]
    starts = {row.split(",")[0]: float(row.split(",")[4]) for row in rows}
    assert starts == {"a": 0, "b": 10, "c": 2}  # b is held until a is over
    assert run(["rerun", str(tmp_path / "out")]) == 0
    assert run(["placement", "show", LAST_FIT]) == 0
    assert "Look at the nodes from the last" in capsys.readouterr().out
    assert run(["admission", "show", SMALL_FIRST]) == 0
    assert "large = 0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "text", "message"),
    [
        (make_placement, "", "defines no placement: write a class derived from Placement"),
        (make_placement, "class P(Placement): pass", "P does not say where jobs go: define"),
        (make_admission, "", "defines no admission: write a class derived from Admission"),
        (make_admission, "class A(Admission): pass", "A does not say whom it lets in: define"),
        (make_admission, "class A(Admission): pass\nclass B(Admission): pass", "several admis"),
        (make_admission, "def", "line 1: invalid syntax|line 3: invalid syntax"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(make, text, message, tmp_path):
    path = tmp_path / "mine.py"
    head = "from rota.core.admission import Admission\nfrom rota.placement.base import Placement\n"
    path.write_text(head + text)
    more = (Topology.uniform(1, 1), 0) if make is make_placement else ()
    with pytest.raises(OptionError, match=message):
        make(str(path), *more)
    with pytest.raises(OptionError, match="cannot be read"):
        make(str(tmp_path / "none.py"), *more)


TYPED = "job_id,submit_s,num_gpus,duration_s,gpu_type\na,0,4,10,a100\nb,1,4,10,a100\n"
NODES = """nodes:
  - {name: n1, gpus: 4, gpu_type: a100}
  - {name: n2, gpus: 4, gpu_type: v100}
"""


def broken(tmp_path, capsys, option, text):
    """Simulate with a part from a file; the error."""
    (tmp_path / "jobs.csv").write_text(TYPED)
    (tmp_path / "cluster.yaml").write_text(NODES)
    (tmp_path / "mine.py").write_text(text)
    args = ["simulate", str(tmp_path / "jobs.csv"), "--cluster", str(tmp_path / "cluster.yaml")]
    args += ["--policy", "fifo", option, str(tmp_path / "mine.py"), "-o", str(tmp_path / "out")]
    assert run(args) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("[(0, 1)]", "job a: chose 1 GPUs on n1, but the job asks for 4 GPUs of type a100"),
        ("[(0, 4)]", "job b: chose 4 GPUs on n1, 4 GPUs more than were free"),
        ("[(1, 4)]", "job a: chose n2 (v100), but the job asks for 4 GPUs of type a100"),
        ("[(2, 4)]", "job a: chose (2, 4): positions are 0 to 1, amounts are numbers"),
        ("[(0, 'x')]", "job a: chose (0, 'x'): positions are 0 to 1, amounts are numbers"),
        ("None if job else []", "job a: `choose` finds no place, although `feasible` says"),
        ("[(1, -1), (0, 5)]", "job a: chose -1 GPUs on n2/3: choose more than 0"),
    ],
)
def test_a_placement_in_a_file_that_breaks_its_promises_is_an_error(
    choice, message, tmp_path, capsys
):
    text = f"""
from rota.placement.base import Placement

class Mine(Placement):
    name = "mine"

    def choose(self, shape, room, job):
        return {choice}
"""
    error = " ".join(broken(tmp_path, capsys, "--placement", text).split())
    assert f"error: placement 'mine', {message}" in error


def test_an_admission_in_a_file_that_answers_with_anything_else_is_an_error(tmp_path, capsys):
    text = """
from rota.core.admission import Admission

class Mine(Admission):
    name = "mine"

    def consider(self, job, view):
        return "no"
"""
    error = " ".join(broken(tmp_path, capsys, "--admission", text).split())
    assert "error: admission 'mine', job a: consider() returned 'no': return None" in error


def test_only_placements_of_others_are_looked_at():
    topology = Topology.uniform(1, 1)
    assert isinstance(make_placement(LAST_FIT, topology, 0), Verified)
    assert not isinstance(make_placement("first-fit", topology, 0), Verified)


# --- the kit --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["consolidate", "count", "first-fit", "random", LAST_FIT])
def test_placements_pass_the_kit(name):
    report = check_placement(name, seeds=range(1))
    assert len(report.passed) >= 7


@pytest.mark.parametrize("name", [*names(ADMISSIONS), "quota:default=4", SMALL_FIRST])
def test_admissions_pass_the_kit(name):
    assert len(check_admission(name, seeds=range(3)).passed) == 5


def test_a_policy_in_a_file_passes_the_kit():
    assert check_policy(str(EXAMPLES / "aged_size.py"), seeds=range(1), only="names").passed


class Shy(FirstFit):
    """Refuses an empty cluster."""

    def feasible(self, shape, room):
        return self.choose(shape, room, None) is not None

    def choose(self, shape, room, job):
        if shape.gpus > 1 and self.free == self.topology.gpus:
            return None
        return super().choose(shape, room, job)


class Mean(FirstFit):
    """Gives one GPU less."""

    def choose(self, shape, room, job):
        choice = super().choose(shape, room, job)
        return choice and [(place, min(amount, 3)) for place, amount in choice]


class Hopeful(FirstFit):
    """Says yes too often."""

    def feasible(self, shape, room):
        return True


_NEXT = counting()


class Moody(FirstFit):
    """Another node every time."""

    def choose(self, shape, room, job):
        choice = super().choose(shape, room, job)
        if choice is None or shape.gpus < 1 or len(choice) > 1:
            return choice
        fine = [i for i, most in enumerate(room.offers(shape)) if most >= choice[0][1]]
        return [(fine[next(_NEXT) % len(fine)], choice[0][1])]


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Shy, "more_room_never_hurts"),
        (Mean, "a_job_gets_what_it_asks_for"),
        (Hopeful, "feasible_agrees_with_choose"),
        (Moody, "the_same_seed_gives_the_same_places"),
    ],
)
def test_wrong_placements_are_found(kind, check):
    with pytest.raises(CheckFailed, match=check):
        check_placement(kind, only=check)


class Shut(Admission):
    """Lets nobody in."""

    name = "shut"

    def consider(self, job, view):
        return Reason.ADMISSION


class Forgetful(Admission):
    """Lets in one at a time, and does not save how many there are."""

    name = "forgetful"

    def __init__(self, params=None):
        super().__init__(params)
        self.inside = 0

    def consider(self, job, view):
        return Reason.ADMISSION if self.inside >= 1 else None

    def entered(self, job):
        self.inside += 1

    def left(self, job):
        self.inside -= 1


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Shut, "nobody_waits_at_the_door_for_ever"),
        (Forgetful, "it_goes_on_after_a_restart"),
    ],
)
def test_wrong_admissions_are_found(kind, check):
    with pytest.raises(CheckFailed, match=check):
        check_admission(kind, only=check)


def test_one_admission_for_all_runs_is_found():
    one = AcceptAll()
    with pytest.raises(CheckFailed, match="every run needs one of its own"):
        check_admission(lambda: one)
