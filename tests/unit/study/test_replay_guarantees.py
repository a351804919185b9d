"""What if a team had GPUs for itself, or a queue had more: the others, with and without."""

from random import Random

import pytest

from rota.core.errors import OptionError
from rota.metrics.history import read_history
from rota.study.config import RunConfig
from rota.study.output import write_run
from rota.study.replay.changes import ReplayChanges
from rota.study.replay.cost_to_others import cost_to_others
from rota.study.replay.replay import Asked, replay
from rota.study.replay.tables import MODEL, WHAT_IF
from rota.study.run import simulate


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    dice = Random(4)  # noqa: S311 - not a secret
    lines, at_s = ["job_id,submit_s,num_gpus,duration_s,vc"], 0
    for number in range(80):
        at_s += dice.randint(0, 300)
        team = dice.choice(["vision", "speech", "text"])
        lines.append(f"{number},{at_s},{dice.choice([1, 2, 4])},{dice.randint(300, 3000)},{team}")
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n")
    config = RunConfig(trace=str(folder / "jobs.csv"), cluster="2x4", policy="fifo-skip")
    out = folder / "out"
    out.mkdir()
    write_run(simulate(config), out)
    return str(out)


def asked(log, tmp_path, **changes):
    question = Asked(log=log, cluster="2x4", model="fifo-skip", changes=ReplayChanges(**changes))
    answer = replay(question, tmp_path, tmp_path)
    model = next(one for one in answer.schedules if one.role == MODEL)
    other = next(one for one in answer.schedules if one.role == WHAT_IF)
    return answer, model, other


def most_held(schedule, *, without):
    """The most GPUs that all tenants but one hold at once."""
    history = read_history(schedule.log)
    names = list(history.tenants.values())
    changes = []
    for slot, from_s, until_s, held in zip(
        history.actor, history.from_s, history.until_s, history.held, strict=True
    ):
        if held and names[history.tenant[slot]] != without:
            changes += [(from_s, held), (until_s, -held)]
    level = most = 0.0
    for _, delta in sorted(changes):
        level += delta
        most = max(most, level)
    return most


def test_others_leave_to_a_team_what_it_is_guaranteed(log, tmp_path):
    answer, model, other = asked(log, tmp_path, guarantees=(("vision", 4.0),))
    assert most_held(model, without="vision") > 4
    assert most_held(other, without="vision") <= 4
    (line,) = cost_to_others(answer)
    assert line.startswith("a guarantee of 4 GPUs for vision changes the mean wait of vision from")
    is_other = model.jobs["tenant"] != "vision"
    more_s = (other.jobs.filter(is_other)["wait_s"] - model.jobs.filter(is_other)["wait_s"]).sum()
    assert f"({more_s / 3600:+,.1f} hours of waiting in all)" in line
    assert more_s > 0


def test_more_gpus_for_a_queue_are_its_own(log, tmp_path):
    answer, model, other = asked(log, tmp_path, more=(("vision", 6.0),))
    assert (model.gpus, other.gpus) == (8, 16)  # two nodes of four, the usual ones here
    assert most_held(other, without="vision") <= 8
    (line,) = [text for text in cost_to_others(answer) if text.startswith("6 GPUs more")]
    mine = model.jobs["tenant"] == "vision"
    assert other.jobs.filter(mine)["wait_s"].mean() < model.jobs.filter(mine)["wait_s"].mean()
    assert "changes the mean wait of vision" in line


def test_who_is_not_there_is_named(log, tmp_path):
    with pytest.raises(OptionError, match="no partition or tenant; there are: speech, text, vis"):
        asked(log, tmp_path, more=(("visions", 8.0),))
    with pytest.raises(OptionError, match="did you mean 'vision'"):
        asked(log, tmp_path, guarantees=(("visions", 8.0),))
