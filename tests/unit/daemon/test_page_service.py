"""What the live page asks of a daemon: the board, the timeline, tables of jobs, and what if."""

import pytest
from msgspec.structs import replace

from agents_net import eventually
from daemon_slow import state
from rota.core.errors import NotFoundError, OptionError
from rota.core.log import Record
from rota.daemon.browsers import MOST, Browsers
from rota.daemon.lanes import ENDS
from rota.daemon.store import Store
from rota.wire import FindQuery, KeptBrowser, LanesQuery, SessionBasis, WhatIf

FOREVER = 1_000.0


def names(found):
    return [job.name for job in found.jobs]


# --- board ----------------------------------------------------------------------------------------


def test_the_board_says_which_job_has_which_gpu(daemon, alice, bob, file):
    empty = daemon.board(-1)
    assert [(node.name, node.gpus) for node in empty.nodes] == [("n0", 2), ("n1", 2)]
    assert empty.owners == [0, 0, 0, 0]
    assert daemon.board(empty.version) is None, "nothing has happened"
    daemon.submit([file(2, FOREVER, name="wide", queue="a"), file(1, FOREVER)], alice)
    daemon.submit([file(2, FOREVER), file(4, FOREVER)], bob)
    for job in ("1", "2"):
        state(daemon, alice, job, "RUNNING")
    board = daemon.board(empty.version)
    assert sorted(board.owners) == [0, 1, 1, 2]
    assert board.owners[:2] in ([1, 1], [2, 0], [0, 2])
    wide = board.jobs[1]
    assert (wide.name, wide.user, wide.queue, wide.gpus) == ("wide", "alice", "a", 2.0)
    assert wide.since <= board.now
    assert board.counts["running"] == 2
    assert board.counts["waiting"] == 2
    assert board.counts["asked"] == 6.0
    daemon.cancel("1", alice)
    eventually(lambda: 1 not in daemon.board(-1).owners)


def test_the_board_names_all_who_share_a_gpu(running, alice, file):
    with running(nodes=(1, 2)) as daemon:
        daemon.submit([file(0.3, FOREVER), file(0.3, FOREVER), file(0.3, FOREVER)], alice)
        for job in "123":
            state(daemon, alice, job, "RUNNING")
        board = daemon.board(-1)
        assert list(board.shared.values()) == [[1, 2, 3]]
        (place,) = board.shared
        assert board.owners[place] in (1, 2, 3)
        daemon.cancel("2", alice)
        eventually(lambda: daemon.board(-1).shared == {place: [1, 3]})
        daemon.cancel("3", alice)
        eventually(lambda: not daemon.board(-1).shared)


# --- timeline -------------------------------------------------------------------------------------


def test_every_end_of_a_run_ends_a_bar():
    ends = {Record.DONE, Record.FAILED, Record.CANCELLED, Record.TIMEOUT, Record.EVICTED}
    assert set(ENDS) == ends | {Record.STOP}


def test_the_timeline_tells_who_had_what(running, alice, bob, operator, file):
    with running() as daemon:
        daemon.submit([file(2, 0.1, name="short", queue="a")], alice)
        daemon.submit([file(2, FOREVER, name="long")], bob)
        done = state(daemon, alice, "1", "SUCCEEDED")
        state(daemon, bob, "2", "RUNNING")
        first, second = daemon.lanes(LanesQuery(), operator).bars
        assert (first.job, first.name, first.user, first.queue) == ("1", "short", "alice", "a")
        assert (first.end, first.ended_at) == ("done", pytest.approx(done.ended_at))
        assert sum(first.nodes.values()) == 2.0
        assert (second.name, second.ended_at, second.end) == ("long", None, "")
        hidden = daemon.lanes(LanesQuery(), alice).bars[1]
        assert (hidden.job, hidden.name, hidden.user, hidden.queue) == ("2", "", "", "")
        later = daemon.lanes(LanesQuery(since=first.ended_at + 1e6), operator)
        assert [bar.job for bar in later.bars] == ["2"]
        assert [bar.job for bar in daemon.lanes(LanesQuery(limit=1), operator).bars] == ["2"]
    with running() as daemon:
        again = daemon.lanes(LanesQuery(), operator).bars
        assert again[0] == first, "it is in the log"
        assert again[1].job == "2"


def test_a_job_that_moves_has_two_bars(daemon, alice, operator, file):
    daemon.submit([file(2, FOREVER)], alice)
    (node,) = state(daemon, alice, "1", "RUNNING").nodes
    daemon.drain(node, operator, stop=True)
    eventually(lambda: state(daemon, alice, "1", "RUNNING").starts == 2)
    before, after = daemon.lanes(LanesQuery(), operator).bars
    assert list(before.nodes) == [node]
    assert before.end == "stop"
    assert before.ended_at <= after.began_at
    assert node not in after.nodes
    assert after.ended_at is None


# --- tables of jobs -------------------------------------------------------------------------------


def test_jobs_are_found_sorted_and_counted(daemon, alice, bob, operator, file):
    daemon.submit(
        [replace(file(gpus, FOREVER, name=name, queue=queue), hold=True)
         for gpus, name, queue in ((1, "Beta", "x"), (2, "alpha", "y"), (4, "gamma", "x"))],
        alice,
    )  # fmt: skip
    daemon.submit([file(1, FOREVER, name="delta")], bob)
    state(daemon, bob, "4", "RUNNING")
    find = daemon.find_jobs
    assert names(find(FindQuery(), operator)) == ["delta", "gamma", "alpha", "Beta"]
    assert names(find(FindQuery(), alice)) == ["gamma", "alpha", "Beta"]
    by_name = FindQuery(sort="name", rising=True)
    assert names(find(by_name, alice)) == ["alpha", "Beta", "gamma"]
    assert names(find(FindQuery(sort="gpus"), alice)) == ["gamma", "alpha", "Beta"]
    page = find(FindQuery(sort="name", rising=True, offset=1, limit=1), alice)
    assert (page.total, names(page)) == (3, ["Beta"])
    assert names(find(FindQuery(search="LPH"), operator)) == ["alpha"]
    assert names(find(FindQuery(search="bob"), operator)) == ["delta"]
    assert find(FindQuery(search="bob"), alice).total == 0
    assert names(find(FindQuery(queue="x"), alice)) == ["gamma", "Beta"]
    assert names(find(FindQuery(state=["RUNNING"]), operator)) == ["delta"]
    assert names(find(FindQuery(user="bob", active=True), operator)) == ["delta"]
    for column in ("id", "user", "queue", "state", "submitted", "started", "ended", "run"):
        assert find(FindQuery(sort=column), operator).total == 4


def test_events_of_one_job_are_read_by_an_index(daemon, alice, file):
    daemon.submit([file(1, 0.01), file(1, 0.01)], alice)
    state(daemon, alice, "2", "SUCCEEDED")
    rows = daemon.events(0, 1_000, "2")
    assert {row.job for row in rows} == {"2"}
    assert [row.event for row in rows][-1] == "done"


# --- what if --------------------------------------------------------------------------------------


def test_the_present_queue_with_more_and_fewer_nodes(daemon, alice, operator, file):
    jobs = [replace(file(2, FOREVER), estimate=600.0) for _ in range(6)]
    daemon.submit(jobs, alice)
    state(daemon, alice, "2", "RUNNING")
    before = daemon.status()
    same = daemon.try_out(WhatIf(runs=3))
    assert (same.present, same.runs) == (same.changed, 3), "nothing was to be different"
    assert (same.present.waiting, same.present.gpus) == (4, 4.0)
    assert same.present.longest_wait_s > same.present.mean_wait_s > 0
    more = daemon.try_out(WhatIf(more_nodes=4, gpus_each=2, runs=3))
    assert [start.job for start in more.present.starts] == ["3", "4", "5", "6"]
    assert more.changed.gpus == 12.0
    assert more.changed.longest_wait_s == 0.0
    assert [start.job for start in more.changed.starts] == ["3", "4", "5", "6"]
    less = daemon.try_out(WhatIf(without=("n1",), runs=3)).changed
    assert less.gpus == 2.0
    assert less.longest_wait_s > same.present.longest_wait_s
    after = daemon.status()
    for key in ("policy", "jobs", "gpus", "decisions"):
        assert before[key] == after[key], "nothing was changed"


def test_another_policy_serves_others_first(daemon, alice, file):
    daemon.submit([replace(file(2, FOREVER), estimate=600.0) for _ in range(2)], alice)
    daemon.submit(
        [replace(file(4, FOREVER, name=name), estimate=estimate)
         for name, estimate in (("long", 9_000.0), ("short", 60.0))],
        alice,
    )  # fmt: skip
    state(daemon, alice, "2", "RUNNING")
    answer = daemon.try_out(WhatIf(policy="sjf", runs=5))
    first, second = ({start.name: start.starts_at for start in outcome.starts}
                     for outcome in (answer.present, answer.changed))  # fmt: skip
    assert first["long"] < first["short"]
    assert second["short"] < second["long"]


def test_what_there_is_not_is_told(daemon):
    with pytest.raises(OptionError, match="dance"):
        daemon.try_out(WhatIf(policy="dance"))
    with pytest.raises(NotFoundError, match="n9"):
        daemon.try_out(WhatIf(without=("n9",)))
    with pytest.raises(OptionError, match="add 100,000 GPUs or fewer"):
        daemon.try_out(WhatIf(more_nodes=10_000, gpus_each=1_024))


@pytest.mark.parametrize(
    "text", ["{}", "auto:candidates=fifo+{}", "hived:config={}", "las:limits={}"]
)
def test_whoever_tries_something_out_says_not_what_the_daemon_reads_or_runs(daemon, tmp_path, text):
    ran = tmp_path / "ran"
    planted = tmp_path / "planted.py"
    planted.write_text(f"open({str(ran)!r}, 'w')")
    with pytest.raises(OptionError, match="only the daemon's configuration may"):
        daemon.try_out(WhatIf(policy=text.format(planted)))
    assert not ran.exists()


def test_files_that_the_configuration_names_are_used_in_trials(running, tmp_path, alice, file):
    own = tmp_path / "own.py"
    own.write_text(
        "from rota.core.policy import PriorityPolicy\n"
        "class Own(PriorityPolicy):\n    def key(self, job, now_s):\n        return job.index\n"
    )
    order = tmp_path / "order.csv"
    order.write_text("node\nn1\nn0\n")
    ranked = f"fgd:node_order={order}"
    with running(policy=str(own), placement=ranked) as daemon:
        daemon.submit([file(4, FOREVER)], alice)
        for trial in (WhatIf(policy="fifo", runs=1), WhatIf(policy=str(own), runs=1)):
            assert daemon.try_out(trial).changed.policy == trial.policy
        assert daemon.try_out(WhatIf(placement=ranked, runs=1)).changed.placement == ranked
        with pytest.raises(OptionError, match="names a file"):
            daemon.try_out(WhatIf(placement=f"{ranked}.old"))


def test_the_policy_in_force_is_told_with_its_parameters(running):
    with running(policy="tiresias") as daemon:
        found = daemon.choices()
    assert found.policy == "tiresias"
    assert found.parameters
    assert {"fifo", "tiresias"} <= set(found.policies)
    assert "consolidate" in found.placements


# --- browsers -------------------------------------------------------------------------------------


def test_browsers_are_kept_over_a_restart_and_not_for_ever(tmp_path):
    now = [0.0]
    store = Store(tmp_path / "rota.db", durable=False)
    kept = KeptBrowser("key", "session", SessionBasis("uid", "7"), 10.0)
    Browsers(store, lambda: now[0]).keep(kept)
    later = Browsers(store, lambda: now[0])
    assert later.find("key") == kept
    assert later.find("other") is None
    now[0] = 10.0
    assert later.find("key") is None
    now[0] = 5.0
    later.forget("session")
    assert Browsers(store, lambda: now[0]).find("key") is None
    for number in range(MOST + 1):
        later.keep(replace(kept, key=str(number), session=str(number)))
    assert later.find("0") is None
    assert later.find("1") is not None
    store.close()
