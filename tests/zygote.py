"""Commands of Rota that start at once: a process that has imported most modules forks.

A test starts commands with `start` and `run`; scripts in a shell find a `rota` in `folder()`. Each
command is a process of its own, with arguments, environment, folder and files as given; only the
interpreter and its modules are shared. Run as a script, this file is the process that forks.
"""

import atexit
import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

SOCKET = "ZYGOTE_SOCKET"  # where it listens, for the `rota` of shells
LENGTH = 4
REAL = str(Path(sys.executable).with_name("rota"))
# The `rota` of shells: has the command started, passes signals on, ends as it does.
CLIENT = f"""#!{sys.executable} -IS
import json, os, signal, socket, sys
where = os.environ.get("{SOCKET}", "")
if not os.path.exists(where):
    os.execv("{REAL}", ["{REAL}", *sys.argv[1:]])
line = socket.socket(socket.AF_UNIX)
line.connect(where)
asked = json.dumps(dict(args=["{REAL}", *sys.argv[1:]], env=dict(os.environ), cwd=os.getcwd(),
                        session=False)).encode()
socket.send_fds(line, [len(asked).to_bytes({LENGTH}, "big")], [0, 1, 2])
line.sendall(asked)
pid = int.from_bytes(line.recv({LENGTH}), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = os.waitstatus_to_exitcode(int.from_bytes(line.recv({LENGTH}), "big"))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


# --- what tests use -------------------------------------------------------------------------------


class Started:
    """A command that was started; the part of `subprocess.Popen` that tests use."""

    def __init__(self, args, files, *, env, cwd=None, new_session=False):
        self.args = [REAL, *map(str, args)]
        self.returncode = None
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(address())
        asked = json.dumps(
            {"args": self.args, "env": dict(env), "cwd": str(cwd or Path.cwd()),
             "session": new_session}
        ).encode()  # fmt: skip
        socket.send_fds(self._line, [len(asked).to_bytes(LENGTH, "big")], files)
        self._line.sendall(asked)
        self.pid = int.from_bytes(self._received(), "big")

    def _received(self):
        data = b""
        while len(data) < LENGTH:
            piece = self._line.recv(LENGTH - len(data))
            if not piece:
                raise RuntimeError("the process that starts commands has gone")
            data += piece
        return data

    def wait(self, timeout=None):
        """Wait for its end; the exit code, negative for a signal."""
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                status = int.from_bytes(self._received(), "big")
            except TimeoutError:
                raise subprocess.TimeoutExpired(self.args, timeout) from None
            self.returncode = os.waitstatus_to_exitcode(status)
            self._line.close()
        return self.returncode

    def poll(self):
        """The exit code, or None while it runs."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._line, selectors.EVENT_READ)
                if ready.select(0):
                    self.wait()
        return self.returncode

    def send_signal(self, number):
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(args, *, env, cwd=None, text=None):
    """Run a command to its end; what it printed."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write((text or "").encode())
        given.seek(0)
        started = Started(args, [f.fileno() for f in (given, out, err)], env=env, cwd=cwd)
        code = started.wait()
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(started.args, code, *said)


def can_start_here():
    """Would it be in the network of this thread? A test may be in a namespace of its own."""
    here, there = (
        Path(f"/proc/{who}/ns/net").stat().st_ino for who in ("thread-self", os.getpid())
    )
    return here == there


_serving = {}


def address():
    """Where it listens; it is started when it is needed first, and ends with this process."""
    if "address" not in _serving:
        folder = tempfile.mkdtemp(prefix="zygote-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        where = f"{folder}/socket"
        process = subprocess.Popen(
            [sys.executable, __file__, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        atexit.register(process.stdin.close)
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the process that starts commands could not begin")
        client = Path(folder, "rota")
        client.write_text(CLIENT)
        client.chmod(0o755)
        _serving.update(address=where, folder=folder, process=process)
    return _serving["address"]


def folder():
    """A folder with a `rota` for shells, which need `SOCKET` in their environment."""
    address()
    return _serving["folder"]


# --- the process that forks -----------------------------------------------------------------------


def import_most():
    """Import what commands use, except Polars, whose threads do not survive a fork."""
    import importlib
    import pkgutil

    import rota

    sys.modules["polars"] = None  # cannot be imported
    found = pkgutil.walk_packages(rota.__path__, "rota.", onerror=lambda _: None)
    names = [module.name for module in found]
    for name in [
        "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.figure",
        "uvicorn", *names,
    ]:  # fmt: skip
        if not name.endswith("__main__") and "migrations" not in name:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    del sys.modules["polars"]


class Server:
    """Forks for everyone who asks, and tells how the process ended."""

    def __init__(self, where):
        self.lines = {}  # process -> who asked for it
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(where)
        self.listening.listen(64)
        self.ended, told = os.pipe()
        for fd in (self.ended, told):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(told)

    def serve(self):
        """Go on until our parent has gone; in a child, what it was asked to do."""
        ready = selectors.DefaultSelector()
        for file in (0, self.ended, self.listening):
            ready.register(file, selectors.EVENT_READ)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            for key, _ in ready.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj == self.ended:
                    os.read(self.ended, 4096)
                    self.bury()
                else:
                    asked = self.fork()
                    if asked is not None:
                        return asked

    def bury(self):
        """Tell the ends of processes."""
        while self.lines:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self.lines.pop(pid) as line:
                try:
                    line.sendall(status.to_bytes(LENGTH, "big"))
                except OSError:  # nobody wants to know any more
                    continue

    def fork(self):
        """Start a process; in it, return what it shall do."""
        line, _ = self.listening.accept()
        first, fds, *_ = socket.recv_fds(line, LENGTH, 3)
        asked = b""
        while len(asked) < int.from_bytes(first, "big"):
            asked += line.recv(1 << 20)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            os.closerange(3, 4096)
            return json.loads(asked)
        for fd in fds:
            os.close(fd)
        self.lines[pid] = line
        line.sendall(pid.to_bytes(LENGTH, "big"))
        return None


def become(asked):
    """Be the process that was asked for, as if it had been started anew."""
    import importlib
    import random
    import time

    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    random.seed()
    sys.argv = asked["args"]
    paths = asked["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [path for path in paths if path] + [p for p in sys.path if p not in paths]
    importlib.invalidate_caches()
    for name, fd, mode, errors in (
        ("stdin", 0, "r", "strict"), ("stdout", 1, "w", "strict"),
        ("stderr", 2, "w", "backslashreplace"),
    ):  # fmt: skip
        file = open(fd, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, file)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    main = sys.modules["__main__"]
    main.__file__, main.__spec__ = REAL, None  # what processes that it spawns begin with


def serve(where):
    """Import, listen, fork."""
    import gc

    sys.path.remove(str(Path(__file__).parent))
    import_most()
    gc.collect()
    gc.freeze()
    asked = Server(where).serve()
    if asked is None:
        return 0
    from rota.cli import main

    become(asked)
    return main()


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
