"""Maintenance and reservations with real agents, while the daemon is killed again and again."""

from agents_net import eventually
from claims import claimed_ports

CONFIG = "local:\n  silent_s: 1800\n  lost_s: 3600\n"
WAIT = "until [ -e {folder}/{name} ]; do sleep 0.1; done"


def test_windows_outlive_the_daemon_and_are_kept_to(daemons, tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text(CONFIG)
    daemon = daemons("--config", config, "--listen", f"127.0.0.1:{claimed_ports(1)[0]}")
    for name in ("w0", "w1"):
        daemon.agent(name, gpus=1)
    eventually(lambda: len(daemon.client.nodes()) == 2)
    tokens = {name: daemon.client.create_token(name, "user") for name in ("ann", "bob")}

    def submit(user, name, **keys):
        """Of this user, until a file of its name is there."""
        file = {"run": WAIT.format(folder=tmp_path, name=name), "resources": {"gpus": 1}, **keys}
        with daemon.connect(token=tokens[user]) as client:
            return client.submit(file).id

    def end(name, job):
        (tmp_path / name).touch()
        daemon.until(job, "SUCCEEDED")

    def die():
        daemon.kill()
        daemon.start()

    def wait(*jobs):
        """They do, although others that came later were started meanwhile."""
        return all(daemon.state_of(job) == "PENDING" for job in jobs)

    daemon.rota("maintenance", "add", "w0", "--start", "5h", "--for", "1h")
    daemon.rota("reserve", "add", "w1", "--user", "bob", "--name", "bobs")
    die()
    endless = submit("ann", "endless")
    long = submit("ann", "long", time_limit="6h")
    short = submit("ann", "short", time_limit="1h")  # the last that was submitted, the only to run
    assert daemon.until(short, "RUNNING").nodes == {"w0": 1.0}
    first = submit("bob", "first")
    assert daemon.until(first, "RUNNING").nodes == {"w1": 1.0}
    assert wait(endless, long)

    # jobs end while nobody decides; those who come next are those who may
    daemon.kill()
    (tmp_path / "short").touch()
    (tmp_path / "first").touch()
    daemon.start()
    daemon.until(short, "SUCCEEDED")
    daemon.until(first, "SUCCEEDED")
    second = submit("bob", "second")
    assert daemon.until(second, "RUNNING").nodes == {"w1": 1.0}  # it was free, and not for ann
    again = submit("ann", "again", time_limit="1h")
    assert daemon.until(again, "RUNNING").nodes == {"w0": 1.0}
    assert wait(endless, long)

    # one that begins now and takes its node back
    daemon.rota("maintenance", "add", "w0", "--for", "5h", "--preempt", "--name", "now")
    daemon.until(again, "PENDING")
    die()
    assert wait(again)
    daemon.rota("maintenance", "rm", "now")
    assert daemon.until(again, "RUNNING").starts == 2

    # without the reservation the node is for everybody
    daemon.rota("reserve", "rm", "bobs")
    die()
    end("second", second)
    assert daemon.until(endless, "RUNNING").nodes == {"w1": 1.0}
    assert wait(long)
    end("again", again)
    last = submit("ann", "last", time_limit="1h")
    assert daemon.until(last, "RUNNING").nodes == {"w0": 1.0}
    assert wait(long)
    daemon.rota("maintenance", "rm", "maintenance-1")
    end("last", last)
    assert daemon.until(long, "RUNNING").nodes == {"w0": 1.0}
