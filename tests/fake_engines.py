"""Engines of containers that are not there: they note their arguments and use bubblewrap.

What they make are real namespaces with the programs of the host, and the variable FROM_IMAGE.
"""

import json
import shutil
import sys

from needs import SYSTEM, need
from rota.live.agent.containers import KINDS

PROGRAM = """#!{python} -IS
import json, os, subprocess, sys, time
words = sys.argv[1:]
with open({noted!r}, "a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] == "rm":
    sys.exit(0)
options = [w for w in words if w.startswith("--")]
values = [w.split("=", 1)[1] for w in options if w.startswith(("--volume=", "--bind="))]
pidfile = next((w.split("=", 1)[1] for w in options if w.startswith("--pidfile=")), "")
image = words[-3] if "exec" not in words[:1] else words[-4]
if "broken" in image:
    print("Error: {kind}: manifest unknown", file=sys.stderr)
    sys.exit(125 if pidfile else 255)
if "slow" in image:
    open({noted!r} + ".slow", "w").close()
    time.sleep(1000)
told, tell = os.pipe()
blocked, unblock = os.pipe()
env = {{"PATH": "/usr/bin:/bin", "FROM_IMAGE": image}}
env |= dict(word.split("=", 2)[1:] for word in options if word.startswith("--env="))
argv = ["/usr/bin/bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
argv += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
for name in ("bin", "lib", "lib64"):
    if os.path.islink("/" + name):
        argv += ["--symlink", "usr/" + name, "/" + name]
for value in values:
    path = value.split(":")[0]
    if path != "/usr":
        above = [path.rsplit("/", n)[0] for n in range(path.count("/") - 1, 0, -1)]
        argv += [w for p in above for w in ("--perms", "0755", "--dir", p)]
        argv += ["--bind", path, path]
argv += ["--json-status-fd", str(tell), "--block-fd", str(blocked), "--"]
argv += ["/bin/sh", *words[-2:]]
child = subprocess.Popen(argv, env=env, pass_fds=(tell, blocked))
os.close(tell)
with os.fdopen(told) as status:
    inside = json.loads(status.readline())["child-pid"]
    if pidfile:
        with open(pidfile, "w") as file:
            file.write(str(inside))
    os.write(unblock, b"x")
    sys.exit(child.wait())
"""


def fake_engine(kind, folder, visible=()):
    """Return an engine of this kind, and a function that returns its calls so far."""
    need(shutil.which("bwrap"), "bubblewrap", SYSTEM)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    program, noted = folder / kind, folder / "noted"
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    program.write_text(PROGRAM.format(python=python, noted=str(noted), kind=kind))
    program.chmod(0o755)
    noted.touch()
    noted.chmod(0o666)

    def calls():
        return [json.loads(line) for line in noted.read_text().splitlines()]

    return KINDS[kind](str(program), visible), calls
