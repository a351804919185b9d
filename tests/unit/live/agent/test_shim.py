import json
import os
import signal
import time
from pathlib import Path

import pytest

from agents_net import alive, eventually, marked
from local_shims import ShimFolder, fill
from rota.live.agent import shim
from rota.live.agent.logs import read_both


def test_it_records_the_exit_code(make_shim):
    folder = make_shim("echo hello; echo oops >&2; exit 3").start()
    end = folder.end()
    assert (end["code"], end["codes"], end["asked"], end["lost"]) == (3, [3], False, "")
    assert end["why"] == "exit code 3"
    assert end["ran"] is True
    assert (folder.out(), folder.out("0.err")) == ("hello\n", "oops\n")


def test_a_signal_is_a_negative_code(make_shim):
    end = make_shim("kill -SEGV $$").start().end()
    assert (end["code"], end["why"]) == (-11, "killed by signal 11 (Segmentation fault)")


def test_nothing_of_it_is_left(make_shim):
    folder = make_shim("sleep 1000 & echo $! > child; exit 0", grace_s=0.1).start()
    assert folder.end()["code"] == 0
    assert not alive(folder.pid("child"))
    assert list(Path("/sys/fs/cgroup").glob(f"*/rota-{folder.key}")) == []


def test_setup_comes_once_and_first(make_shim):
    folder = make_shim("echo run $RANK", setup="echo setup", processes=2).start()
    assert folder.end()["codes"] == [0, 0]
    assert sorted(folder.out().splitlines()) == ["run 0", "run 1", "setup"]
    assert folder.out().startswith("setup\n")


def test_a_setup_that_fails_is_the_end(make_shim):
    folder = make_shim("echo never", setup="exit 4").start()
    end = folder.end()
    assert (end["code"], end["why"], end["ran"]) == (4, "setup failed: exit code 4", False)
    assert not (folder.path / "running").exists()
    assert folder.out() == ""


def test_one_process_that_fails_ends_the_others(make_shim):
    script = "if [ $RANK = 1 ]; then sleep 0.2; exit 7; fi; echo $$ > pid$RANK; exec sleep 1000"
    folder = make_shim(script, processes=3).start()
    end = folder.end()
    assert (end["code"], end["why"]) == (7, "exit code 7")
    assert end["codes"] == [-15, 7, -15]
    assert not end["asked"]
    assert not alive(folder.pid("pid0"))


def test_a_workdir_that_does_not_exist(make_shim):
    end = make_shim("true", workdir="/does/not/exist").start().end()
    assert end["code"] == shim.NOT_STARTED
    assert end["why"].startswith("cannot be started: ")
    assert "/does/not/exist" in end["why"]
    assert end["ran"] is False


def test_halt_lets_it_save_its_work(make_shim):
    script = """trap 'sleep 0.3; echo saved > state; exit 0' TERM
touch ready
while :; do sleep 0.02; done"""
    folder = make_shim(script).start()
    eventually((folder.path / "ready").exists)
    folder.ask()
    end = folder.end()
    assert (end["asked"], end["code"], end["lost"]) == (True, 0, "")
    assert (folder.path / "state").read_text() == "saved\n"


def test_a_child_of_the_shell_gets_its_grace_too(make_shim):
    # the shell dies at once, its child needs longer than leftovers of a job that ended may have
    assert shim.LEFTOVERS_S < 2.5
    program = "import signal, sys, time, pathlib\n"
    program += "def save(*_):\n time.sleep(2.5)\n pathlib.Path('state').touch()\n sys.exit(0)\n"
    program += "signal.signal(signal.SIGTERM, save)\npathlib.Path('ready').touch()\n"
    program += "while True: time.sleep(1)\n"
    folder = make_shim("python3 -S program.py\necho not reached")
    (folder.path / "program.py").write_text(program)
    folder.start()
    eventually((folder.path / "ready").exists)
    folder.ask()
    assert folder.end()["asked"]
    assert (folder.path / "state").exists()


def test_one_that_ignores_it_is_killed_after_its_grace(make_shim):
    script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done"
    folder = make_shim(script, grace_s=0.4).start()
    pid = folder.pid("pid")
    asked_s = time.monotonic()
    folder.ask()
    end = folder.end()
    assert time.monotonic() - asked_s >= 0.4
    assert (end["asked"], end["code"]) == (True, -9)
    assert not alive(pid)


def test_kill_does_not_wait(make_shim):
    folder = make_shim("trap '' TERM; echo $$ > pid; exec sleep 1000", grace_s=1000.0).start()
    pid = folder.pid("pid")
    folder.ask("halt")
    folder.ask("kill")
    assert folder.end()["code"] == -9
    assert not alive(pid)


@pytest.mark.parametrize("how", ["halt", "kill", ""])
def test_a_session_of_its_own_is_no_escape(make_shim, how):
    script = "setsid bash -c 'trap \"\" TERM; echo $$ > escaped; exec sleep 1000' &\n"
    script += "while [ ! -s escaped ]; do sleep 0.01; done\n" + ("sleep 1000" if how else "exit 0")
    folder = make_shim(script, grace_s=0.2).start()
    pid = folder.pid("escaped")
    if how:
        folder.ask(how)
    folder.end()
    assert not alive(pid)
    assert marked(folder.key) == []


HIDE = {
    "unified": "true",
    "pids": "umount /sys/fs/cgroup/unified /sys/fs/cgroup/freezer",
    "freezer": "umount /sys/fs/cgroup/unified /sys/fs/cgroup/pids",
    "no": "mount -t tmpfs none /sys/fs/cgroup",
}


HERE = [kind for kind in HIDE if kind == "no" or Path(f"/sys/fs/cgroup/{kind}").is_dir()]


@pytest.mark.parametrize("kind", HERE)
def test_it_does_with_whatever_cgroups_there_are(make_shim, root_only, kind):
    script = "setsid bash -c 'trap \"\" TERM; echo $$ > far; sleep 1000; sleep 1000' & sleep 1000"
    folder = make_shim(script, grace_s=0.2)
    folder.start("unshare", "--mount", "sh", "-c", f'{HIDE[kind]} && exec "$@"', "sh")
    pid = folder.pid("far")
    used = json.loads((folder.path / "identity.json").read_text())["cgroup"]
    assert used.startswith(f"/sys/fs/cgroup/{kind}/" if kind != "no" else "")
    assert bool(used) == (kind != "no")
    folder.ask()
    assert folder.end()["asked"]
    assert not alive(pid)
    assert marked(folder.key) == []


ESCAPE = "env -i setsid bash -c 'trap \"\" TERM; echo $$ > far; exec sleep 1000' & sleep 1000"


@pytest.mark.parametrize("victim", ["shim", "guard"])
def test_who_escaped_dies_with_the_shim_or_its_guard(make_shim, root_only, victim):
    folder = make_shim(ESCAPE, grace_s=1000.0)
    folder.start("unshare", "--mount", "sh", "-c", f'{HIDE["no"]} && exec "$@"', "sh")
    pid = folder.pid("far")
    identity = json.loads((folder.path / "identity.json").read_text())
    assert not identity["cgroup"]
    os.kill(identity["pid"] if victim == "shim" else folder.process.pid, signal.SIGKILL)
    assert folder.process.wait(300) == (1 if victim == "shim" else -9)
    if victim == "guard":  # the shim does it, and says why
        eventually((folder.path / "exit.json").exists)
        assert json.loads((folder.path / "exit.json").read_text())["lost"] == "its guard died"
    assert not alive(pid)


def test_a_stop_that_came_before_the_shim(make_shim):
    folder = make_shim("echo never")
    (folder.path / "stop").write_text("halt")
    end = folder.start().end()
    assert (end["asked"], end["ran"], end["code"]) == (True, False, 0)


def test_a_stop_during_setup(make_shim):
    folder = make_shim("echo never", setup="touch ready; sleep 1000").start()
    eventually((folder.path / "ready").exists)
    folder.ask()
    end = folder.end()
    assert (end["asked"], end["ran"]) == (True, False)
    assert folder.out() == ""


def test_who_failed_before_was_not_asked(make_shim):
    script = "if [ $RANK = 0 ]; then while [ ! -e ready ]; do sleep 0.01; done; exit 5; fi\n"
    script += "trap 'echo 1 > asked' TERM; touch ready; while :; do sleep 0.02; done"
    folder = make_shim(script, processes=2, grace_s=10.0).start()
    folder.pid("asked")
    folder.ask("kill")
    assert not folder.end()["asked"]


def test_a_signal_to_the_shim_is_nobodys_wish(make_shim):
    folder = make_shim("echo $$ > pid; exec sleep 1000").start()
    pid = folder.pid("pid")
    os.kill(folder.process.pid, signal.SIGTERM)
    end = folder.end()
    assert end["lost"] == "its shim got signal 15 from outside"
    assert not end["asked"]
    assert not alive(pid)


def test_without_a_lease_nothing_runs_on(make_shim, tmp_path):
    lease = tmp_path / "lease"
    lease.write_text(f"{time.clock_gettime(time.CLOCK_BOOTTIME) + 0.7:.3f}   ")
    folder = make_shim("trap '' TERM; echo $$ > pid; exec sleep 1000", lease=str(lease)).start()
    pid = folder.pid("pid")
    end = folder.end()
    assert end["lost"] == "killed: its node was cut off from the server"
    assert not alive(pid)


def test_only_one_shim_takes_a_folder(make_shim):
    folder = make_shim("echo once; sleep 0.5").start().running()
    first = folder.process
    assert folder.start().process.wait(300) == 0
    folder.process = first
    folder.end()
    assert folder.start().process.wait(300) == 0  # it ended before: never again
    assert folder.out() == "once\n"


def test_its_identity_is_of_this_boot(make_shim):
    folder = make_shim("sleep 0.2").start()
    path = folder.path / "identity.json"
    eventually(path.exists)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot in path.read_text()
    shim_pid = json.loads(path.read_text())["pid"]
    assert shim.stat_of(shim_pid)[0] == folder.process.pid  # its guard is what was started
    folder.end()


def test_inherited_variables_stay_and_python_adds_none(make_shim, monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.delenv("LC_CTYPE", raising=False)
    folder = make_shim('echo "$INHERITED ${LC_CTYPE-unset} $EXTRA"', unset=["LC_CTYPE"],
                       env={"EXTRA": "a b; $(c) 'd'"}).start()  # fmt: skip
    folder.end()
    assert folder.out() == "yes unset a b; $(c) 'd'\n"


def test_long_output_is_rotated_and_nothing_is_lost(make_shim):
    lines = 400
    script = f"for i in $(seq {lines}); do printf '%099d\\n' $i; sleep 0.005; done; sleep 1.5"
    folder = make_shim(script, log_limit=10_000, log_keep=100).start()
    folder.end()
    path = str(folder.path / "0.out")
    copies = shim.rotated(path)
    assert copies
    expected = 0
    text = b""
    for offset, size, name in copies:
        assert offset == expected
        expected += size
        text += Path(name).read_bytes()
    text += Path(path).read_bytes()
    assert [int(line) for line in text.split()] == list(range(1, lines + 1))


def test_old_output_goes(tmp_path):
    path = str(tmp_path / "0.out")
    for number in range(5):
        Path(path).write_text(str(number) * 10)
        shim.rotate(path, keep=2)
    assert [(offset, size) for offset, size, _ in shim.rotated(path)] == [(30, 10), (40, 10)]
    assert Path(path).read_bytes() == b""


def test_a_full_disk_costs_no_exit_code(make_shim, small_disk, tmp_path):
    go = tmp_path / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.02; done; echo lost; exit 6"
    folder = ShimFolder(small_disk / "run", script).start().running()
    fill(small_disk)
    go.touch()
    end = folder.end()
    assert (end["code"], end["codes"]) == (6, [6])
    folder.close()


def test_a_full_disk_is_waited_for(make_shim, small_disk):
    folder = ShimFolder(small_disk / "run", "exit 6")
    (folder.path / "exit.reserved").unlink()
    fill(small_disk)
    folder.start()
    time.sleep(0.7)
    assert folder.process.poll() is None
    assert not (folder.path / "exit.json").exists()
    (small_disk / "filler").unlink()
    assert folder.end()["code"] == 6
    folder.close()


@pytest.mark.soak
def test_it_starts_quickly(make_shim):
    took_s = []
    for _ in range(5):
        folder = make_shim("date +%s.%N")
        before_s = time.time()
        folder.start().end()
        took_s.append(float(folder.out()) - before_s)
    assert min(took_s) < 0.5, "seconds until the job's first command"


# --- both outputs together ------------------------------------------------------------------------


def both(stem, offset=0, limit=1 << 20):
    return read_both(stem, offset, limit)


def test_both_outputs_come_in_the_order_in_which_they_were_written(make_shim):
    """The job goes on when the shim has noted what it wrote: so it must be told of every write."""
    seen = "until [ $(cat 0.order 2>/dev/null | wc -l) -ge {} ]; do sleep 0.01; done; "
    script = (
        "echo one; " + seen.format(2) + "echo two >&2; " + seen.format(3) + "echo three; "
        + seen.format(4) + "echo four >&2"
    )  # fmt: skip
    folder = make_shim(script).start()
    folder.end()
    data, start, end = both(folder.path / "0")
    assert (data, start, end) == (b"one\ntwo\nthree\nfour\n", 0, len(data))
    assert (folder.out(), folder.out("0.err")) == ("one\nthree\n", "two\nfour\n")
    pieces = [both(folder.path / "0", offset, 3)[0] for offset in range(0, end, 3)]
    assert b"".join(pieces) == data


def test_a_burst_that_is_over_before_the_shim_looks_comes_line_by_line(make_shim):
    script = (
        "touch ready; until [ -e go ]; do sleep 0.01; done; "
        "for i in 1 2 3; do echo out $i; echo err $i >&2; done; touch said; "
        "until [ -e end ]; do sleep 0.01; done"
    )
    folder = make_shim(script).start()
    eventually((folder.path / "ready").exists)
    pid = json.loads((folder.path / "identity.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)  # as on a machine that is too busy
    (folder.path / "go").touch()
    eventually((folder.path / "said").exists)
    os.kill(pid, signal.SIGCONT)
    (folder.path / "end").touch()
    folder.end()
    assert both(folder.path / "0")[0] == b"out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"


OUT, ERR = 0, 1
BURSTS = {
    "line by line": ([OUT, ERR, OUT, ERR], b"a\nb\n", b"X\nY\n", b"a\nX\nb\nY\n"),
    "the last takes the rest": (
        [OUT, ERR, OUT, ERR],
        b"a\nb\nc\n",
        b"X\nY\nZ",
        b"a\nX\nb\nc\nY\nZ",
    ),
    "one turn has everything": ([ERR, OUT], b"a\nb\n", b"X\nY\n", b"X\nY\na\nb\n"),
    "several events are one turn": ([OUT, OUT, ERR, ERR, OUT], b"a\nb\n", b"X\n", b"a\nX\nb\n"),
    "less than its turns": ([ERR, OUT, ERR, OUT, ERR], b"ab", b"X\nY", b"X\nabY"),
    "nothing known": ([], b"a\nb\n", b"X\n", b"a\nb\nX\n"),
    "one of them only": ([ERR], b"a\n", b"X\n", b"a\nX\n"),
}


@pytest.mark.parametrize("burst", BURSTS)
def test_turns(stem, burst):
    turns, out, err, expected = BURSTS[burst]
    write(stem, "out", b"before\n")
    both(stem)
    write(stem, "out", out)
    write(stem, "err", err)
    os.utime(stem.with_name("0.out"), ns=(1, 1))  # without turns it counts as the first
    paths = [str(stem.with_name(f"0.{name}")) for name in ("out", "err")]
    with shim.ordering(str(stem.with_name("0.order"))) as fd:
        shim.note_order(fd, *paths, turns)
    assert both(stem)[0] == b"before\n" + expected


def test_turns_after_a_rotation(stem):
    paths = [str(stem.with_name(f"0.{name}")) for name in ("out", "err")]
    with shim.ordering(str(stem.with_name("0.order"))) as fd:
        for number in (1, 2):
            for name in ("out", "err"):
                write(stem, name, b"%s %d\n%s %d\n" % ((name.encode(), number) * 2))
            shim.note_order(fd, *paths, [OUT, ERR, OUT, ERR])
            shim.rotate(paths[OUT], 2)
    piece = b"out %d\nerr %d\nout %d\nerr %d\n"
    assert both(stem)[0] == b"".join(piece % ((number,) * 4) for number in (1, 2))


@pytest.fixture
def stem(tmp_path):
    for name in ("out", "err"):
        (tmp_path / f"0.{name}").touch()
    return tmp_path / "0"


def write(stem, name, data):
    with stem.with_name(f"0.{name}").open("ab") as file:
        file.write(data)


def test_what_was_told_once_stays_where_it_is(stem):
    """Whoever follows both counts bytes: what comes later must not change what came before."""
    write(stem, "out", b"a")
    write(stem, "err", b"B")
    os.utime(stem.with_name("0.out"), ns=(1, 1))  # it was written to first
    first = both(stem)[0]
    assert first == b"aB"
    whole = first
    for name, data in (("out", b"cc"), ("out", b"d"), ("err", b"E"), ("out", b"f")):
        write(stem, name, data)
        new, _, end = both(stem, len(whole))
        assert new == data
        whole += new
        assert end == len(whole)
    assert both(stem)[0] == whole == b"aBccdEf"
    assert stem.with_name("0.order").stat().st_size == 6 * shim.RECORD  # equal neighbours are one


def test_both_outputs_after_a_rotation(stem):
    for number in range(6):
        write(stem, "out", b"o%d\n" % number)
        both(stem, 0, 0)
        write(stem, "err", b"e%d\n" % number)
        both(stem, 0, 0)
        with shim.ordering(str(stem.with_name("0.order"))):
            shim.rotate(str(stem.with_name("0.out")), 2)
    data, start, end = both(stem)
    assert (data, end) == (b"", 36)  # the beginning is gone
    assert both(stem, start)[0] == b"e3\no4\ne4\no5\ne5\n"


def test_the_order_of_output_does_not_grow_for_ever(stem, monkeypatch):
    monkeypatch.setattr(shim, "MOST_ORDER", 20 * shim.RECORD)
    for number in range(100):
        write(stem, "out" if number % 2 else "err", b"%02d" % number)
        both(stem, 0, 0)
    assert stem.with_name("0.order").stat().st_size <= 22 * shim.RECORD
    _, start, end = both(stem)
    assert end == 200
    assert both(stem, start)[0] == b"".join(b"%02d" % n for n in range(start // 2, 100))
