"""A shell whose `rota` and `python` run in the process of the test.

Starting an interpreter and importing costs more than most commands of a page. Scripts are run by a
real bash (pipes, loops, redirections), in which the two are functions that hand their arguments to
the test and wait for the exit code. The test writes to the caller's own stdout and stderr. What
reads from a pipe, is started with `exec` or with its own environment stays a process.
"""

import importlib
import os
import re
import runpy
import select
import subprocess
import sys
import traceback
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

from rota.cli.app import run as rota
from rota.core import registry

FUNCTIONS = """
in_the_test() {
  local code out err
  if [ -p /dev/stdin ]; then command "$@"; return; fi
  exec {out}>&1 {err}>&2
  printf '%s\\0' "$#" "$@" "$PWD" "/proc/$BASHPID/fd/$out" "/proc/$BASHPID/fd/$err" \\
    > "$PAGE_SHELL/asked"
  read -r code < "$PAGE_SHELL/answered"
  exec {out}>&- {err}>&-
  return "$code"
}
rota() { in_the_test rota "$@"; }
python() { in_the_test python "$@"; }
"""
ASSIGNS = re.compile(r"^\s*(export |\w+=)", re.MULTILINE)
LONGEST = 1 << 16


class PageShell:
    """Runs scripts in a folder; modules there count as installed."""

    def __init__(self, folder):
        self.folder = folder
        self.inside = folder / ".page-shell"
        self.inside.mkdir()
        (self.inside / "functions").write_text(FUNCTIONS)
        for name in ("asked", "answered"):
            os.mkfifo(self.inside / name)
        # Both ends are open here, so that neither side has to wait for the other to open.
        self.asked, self.answered = (
            os.open(self.inside / name, os.O_RDWR) for name in ("asked", "answered")
        )

    def close(self):
        """Nothing asks any more."""
        os.close(self.asked)
        os.close(self.answered)

    def run(self, script):
        """Return exit code, stdout and stderr of a script."""
        env = dict(os.environ)
        if not ASSIGNS.search(script):
            env |= {"PAGE_SHELL": str(self.inside), "BASH_ENV": str(self.inside / "functions")}
        outputs = [self.inside / name for name in ("stdout", "stderr")]
        with ExitStack() as stack:
            for path in outputs:
                path.unlink(missing_ok=True)
            stdout, stderr = (stack.enter_context(path.open("ab")) for path in outputs)
            bash = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            )  # fmt: skip
            ended = os.pidfd_open(bash.pid)
            stack.callback(os.close, ended)
            stack.callback(bash.kill)
            while ended not in (ready := select.select([self.asked, ended], [], [])[0]):
                if self.asked in ready:
                    self._serve()
            code = bash.wait()
        return code, *(path.read_text() for path in outputs)

    def _serve(self):
        """Run what was asked for, where it was asked."""
        words = os.read(self.asked, LONGEST)
        while b"\0" not in words or words.count(b"\0") < 4 + int(words.partition(b"\0")[0]):
            words += os.read(self.asked, LONGEST)
        _, name, *args, folder, stdout, stderr, _ = words.decode().split("\0")
        paths, modules = list(sys.path), set(sys.modules)
        with ExitStack() as stack:
            stack.enter_context(chdir(folder))
            stack.enter_context(redirect_stdout(stack.enter_context(_reopened(stdout))))
            stack.enter_context(redirect_stderr(stack.enter_context(_reopened(stderr))))
            sys.path.insert(0, str(self.folder))
            self._refresh()
            try:
                code = rota(args) if name == "rota" else python(args)
            finally:
                sys.path[:] = paths
                self._refresh()  # what the page installed is not for other tests
                for module in set(sys.modules) - modules:
                    if str(self.folder) in str(getattr(sys.modules[module], "__file__", "")):
                        del sys.modules[module]
        os.write(self.answered, f"{code}\n".encode())

    def _refresh(self):
        """Modules and parts that were installed since."""
        importlib.invalidate_caches()
        if any(self.folder.glob("*.dist-info")):
            forget_parts()


def forget_parts():
    """Let the registry look again for what is installed."""
    for function in vars(registry).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _reopened(path):
    """Write where another process writes, after what is there."""
    return _Closing(os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8"))


class _Closing:
    """Closes a file; that nobody reads any more is no error, as in a pipe to `head`."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self.file

    def __exit__(self, *error):
        with suppress(BrokenPipeError):
            self.file.close()


def python(args):
    """Run `python -c CODE ...` or `python SCRIPT ...`; its exit code."""
    before, sys.argv = sys.argv, args
    try:
        if args[0] == "-c":
            main = ModuleType("__main__")
            sys.argv = ["-c", *args[2:]]
            exec(compile(args[1], "<string>", "exec"), vars(main))  # noqa: S102
        else:
            script = Path(args[0]).resolve()  # processes that it starts look for it by its path
            sys.path.insert(0, str(script.parent))
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        return 1
    finally:
        sys.argv = before
    return 0
