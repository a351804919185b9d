"""Speaks with Ray for the daemon, in a process of its own.

A script of its own (`python bridge.py`): it needs Ray and nothing of Rota, so that it may run with
the Python that the Ray cluster has, and so that the daemon outlives Ray. Requests come in as lines
of JSON, `{"id": 7, "do": "look", ...}`; each has an answer, `{"id": 7, "answer": ...}` or
`{"id": 7, "error": "..."}`. The first one, number 0, says where Ray is, the namespace, and a file
to lock. A line `{"news": true}` says that it is worth looking again. When its input ends, it
ends: then there is no daemon any more.

A run is a detached placement group, `NAMESPACE/RUN`, each bundle of which is bound to a node, with
one detached actor for each part, `RUN/RANK`. Ray knows both by their names, and takes each name
only once. An actor (`PartActor`) travels to its node as it is here: nodes need Ray and no Rota.
"""

from __future__ import annotations  # the Python of a Ray cluster may be older than Rota's

import asyncio
import base64
import contextlib
import fcntl
import json
import os
import py_compile
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

NODE_ID = "ray.io/node-id"  # the label that Ray gives each node
BRIDGE_POLL_S, POLL_S = 20.0, 1.0  # the longest that an actor is asked at a time; between its looks
ANSWER_S, CONNECT_S = 15.0, 5.0
PARENT_SIGNAL = 1  # PR_SET_PDEATHSIG
MOST_REPORT = 1 << 16
LEAST_CPU = 0.001  # a bundle may not be empty
PRIVATE = 0o700
MOST_WHY = 300
DEAD = ("ActorDiedError", "ActorUnschedulableError", "ActorPlacementGroupRemoved")
"""What Ray says when an actor will never answer again."""
TIED = f"""\
import ctypes, os, sys
ctypes.CDLL(None).prctl({PARENT_SIGNAL}, {int(signal.SIGKILL)}, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-I", "-S", *sys.argv[2:]])
"""
"""Becomes another script that is killed when whoever started it ends."""


# --- on the node ----------------------------------------------------------------------------------


class PartActor:
    """An actor: starts the shim of one part of a run, and tells what becomes of it.

    What is to be done comes with its creation, so it is done once: an actor is never restarted.
    Whoever ends the actor ends the job. `packed`: `folder` (of the part), `shim` (its script),
    `order` (for it), `files` (further ones), `make` (folders that the job needs), `visible` (the
    variables that list all GPUs).
    """

    def __init__(self, packed: bytes) -> None:
        asked = json.loads(zlib.decompress(packed))
        self._folder = Path(asked["folder"])
        self._process: subprocess.Popen[bytes] | None = None
        self._wake = -1
        self._changed = asyncio.Event()
        self._reported = 0
        self.version = 0
        self.state: dict[str, Any] = {"state": "starting", "ran": False, "values": {}}
        try:
            self._begin(asked)
        except (OSError, ValueError) as error:
            self._tell(state="lost", why=f"cannot be started on its node: {error}")

    def _begin(self, asked: dict[str, Any]) -> None:
        order = asked["order"]
        devices = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        for name in asked["visible"]:
            order["env"][name] = ",".join(devices)
        for number, env in enumerate(order["processes"]):
            if "local_gpu_id" in env:
                env["local_gpu_id"] = devices[number % len(devices)] if devices else ""
        root = Path(asked["root"])
        private_folder(root)
        for path in asked["make"]:
            Path(path).mkdir(PRIVATE, exist_ok=True)
        self._folder.mkdir(PRIVATE)  # fails if it was there before: never twice
        for name in ("job", "channels", "logs"):
            (self._folder / name).mkdir(PRIVATE)
        os.mkfifo(order["wake"], 0o600)
        texts = {"order.json": json.dumps(order), "lock": "", "exit.reserved": " " * 4096}
        for name, text in {**texts, **asked["files"]}.items():
            write(self._folder / name, text)
        self._wake = os.open(order["wake"], os.O_RDWR | os.O_NONBLOCK)
        script = compiled(asked["shim"], root)
        words = [sys.executable, "-I", "-S", "-c", TIED, str(os.getpid()), script]
        with (self._folder / "shim.err").open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own script
                [*words, str(self._folder)],
                env=node_environment(), cwd="/", stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip

    def _tell(self, **news: Any) -> None:
        self.state = {**self.state, **news}
        self.version += 1

    @property
    def over(self) -> bool:
        """Is nothing left of it?"""
        return self.state["state"] in ("ended", "lost")

    def look(self) -> None:
        """Notice what happened."""
        if self.over or self._process is None:
            return
        gone = self._process.poll() is not None and self._no_shim()
        end = read_json(self._folder / "exit.json")
        began = read_json(self._folder / "running")
        values = self._reports()
        if began and not self.state["ran"]:
            self._tell(state="running", ran=True, began=began)
        if values:
            self._tell(values={**self.state["values"], **values})
        if end:
            self._tell(
                state="lost" if end.get("lost") else "ended", ran=bool(end.get("ran")),
                why=str(end.get("lost") or end.get("why", "")), code=int(end.get("code", 0)),
                asked=bool(end.get("asked")), timed_out=bool(end.get("timed_out")),
                began=end.get("began") or {}, ended={"time": end["time"], "clock": end["clock"]},
            )  # fmt: skip
        elif gone:
            said = tail_of(self._folder / "shim.err")
            self._tell(state="lost", why=f"its shim died{': ' if said else ''}{said}")

    def _no_shim(self) -> bool:
        """Has it ended with all that belongs to it? Its guard may be gone a moment before it."""
        try:
            fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:  # somebody has removed its folder
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def _reports(self) -> dict[str, float]:
        """What the job has reported since the last look; the file is the job's."""
        values: dict[str, float] = {}
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with contextlib.suppress(OSError, ValueError, TypeError):
            fd = os.open(self._folder / "job/report", flags)
            try:
                data = os.pread(fd, MOST_REPORT, self._reported)
            finally:
                os.close(fd)
            whole = data[: data.rfind(b"\n") + 1]
            self._reported += len(whole)
            for line in whole.splitlines():
                for name, value in json.loads(line).items():
                    values[str(name)[:100]] = float(value)
        return values

    # --- what the bridge asks ---------------------------------------------------------------------

    async def news(self, known: int) -> tuple[int, dict[str, Any]]:
        """What became of it: as soon as there is more than was known, or after a while."""
        loop = asyncio.get_running_loop()
        if self._wake >= 0:
            loop.add_reader(self._wake, self._woken)
        until = loop.time() + BRIDGE_POLL_S
        self.look()
        while self.version == known and loop.time() < until:
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), POLL_S)
            self.look()
        return self.version, self.state

    def _woken(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake, 4096)
        self._changed.set()

    async def stop(self, how: str) -> None:
        """`halt` or `kill`."""
        self.look()
        if self.over or self._process is None:
            return
        write(self._folder / "stop.part", how)
        (self._folder / "stop.part").rename(self._folder / "stop")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGCONT)  # it looks then

    async def read(self, name: str, offset: int, limit: int) -> tuple[int, bytes]:
        """A piece of `out`, `err` or `order`, and where it begins: the oldest may be gone."""
        return read_output(self._folder / "logs" / f"0.{name}", offset, limit)

    async def leave(self) -> None:
        """Remove what nobody needs any more; the folder of the job stays for its next run."""
        shutil.rmtree(self._folder, ignore_errors=True)


def private_folder(path: Path) -> None:
    """Make a folder for us alone; refuse one that somebody else has made."""
    for each in (path.parent, path):
        each.mkdir(PRIVATE, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise OSError(f"{path} belongs to somebody else: set `ray.folder`")


def write(path: Path, text: str) -> None:
    """Write a text as users gave it."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def compiled(script: str, root: Path) -> str:
    """Where the script of shims is; it is compiled once."""
    path = root / f"shim-{zlib.crc32(script.encode()):08x}.pyc"
    if not path.exists():
        source = root / f"shim-{os.getpid()}.py"
        write(source, script)
        py_compile.compile(str(source), str(path), doraise=True)
        source.unlink()
    return str(path)


def node_environment() -> dict[str, str]:
    """What Ray was started with on this node: Ray adds much for its own workers."""
    found = dict(os.environ)
    with contextlib.suppress(OSError):
        given = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
        pairs = [text.partition(b"=") for text in given if b"=" in text]
        if pairs:
            found = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return {name: value for name, value in found.items() if not name.startswith("ROTA_")}


def read_json(path: Path) -> dict[str, Any]:
    """A record; empty if it is not there."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def tail_of(path: Path) -> str:
    """The end of a text."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()[-MOST_WHY:]
    return ""


def read_output(path: Path, offset: int, limit: int) -> tuple[int, bytes]:
    """A piece of an output; older parts of it are in files with their offsets as endings."""
    pieces = sorted(
        (int(ending), file)
        for file in path.parent.glob(f"{path.name}.*")
        if (ending := file.name.rpartition(".")[2]).isdigit()
    )
    base = pieces[-1][0] + pieces[-1][1].stat().st_size if pieces else 0
    for start, file in [*pieces, (base, path)]:
        with contextlib.suppress(OSError):
            at = max(offset, start)
            if at < start + file.stat().st_size:
                with file.open("rb") as data:
                    data.seek(at - start)
                    return at, data.read(limit)
    return offset, b""


# --- beside the daemon ----------------------------------------------------------------------------


class WatchedPart:
    """An actor, and what it said last. It is always asked for what comes next."""

    def __init__(self, actor: Any, heard: queue.Queue[Any]) -> None:
        self.actor = actor
        self.closed = False  # nobody wants to know any more
        self.state: dict[str, Any] = {"state": "waiting"}
        self._heard = heard
        self._version = -1
        self.ask()

    def ask(self) -> None:
        """Ask for what is new."""
        self.actor.news.remote(self._version).future().add_done_callback(
            lambda done: self._heard.put((self, done))
        )

    def hear(self, done: Any) -> bool:
        """It answered, or is gone; was there any news?"""
        if self.closed:
            return False
        try:
            version, state = done.result()
        except Exception as error:  # noqa: BLE001 - Ray has many of them
            if type(error).__name__ in DEAD:
                self.state = {**self.state, "state": "gone", "why": brief(error)}
                return True
            again = threading.Timer(POLL_S, self.ask)  # it is out of reach, perhaps not for long
            again.daemon = True
            again.start()
            return False
        fresh = bool(version != self._version)
        self._version, self.state = version, state
        self.ask()
        return fresh


class Bridge:
    """Carries out requests, one after the other."""

    def __init__(self, ray: Any, namespace: str, heard: queue.Queue[Any]) -> None:
        groups = import_module("ray.util.placement_group")  # its package has a function so called
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._ray, self._groups, self._inside = ray, groups, PlacementGroupSchedulingStrategy
        self._namespace = namespace
        self._heard = heard
        self._parts: dict[str, dict[int, WatchedPart]] = {}
        self._actor = ray.remote(max_restarts=0, max_task_retries=0)(PartActor)

    def carry_out(self, ask: dict[str, Any]) -> Any:
        """The answer to a request."""
        return {
            "look": self.look, "create": self.create, "stop": self.stop, "read": self.read,
            "remove": self.remove,
        }[ask["do"]](ask)  # fmt: skip

    # --- what there is ----------------------------------------------------------------------------

    def look(self, _: dict[str, Any]) -> dict[str, Any]:
        """All nodes, and the groups of this daemon with what is known of their parts."""
        free = self._ray._private.state.available_resources_per_node()  # noqa: SLF001 - there is no other way to learn it
        nodes = [
            {
                "id": node["NodeID"], "name": node["NodeName"], "alive": node["Alive"],
                "address": node["NodeManagerAddress"], "resources": node["Resources"],
                "free": free.get(node["NodeID"], {}).get("GPU", 0.0),
                "why": node.get("DeathReasonMessage", ""),
            }
            for node in self._ray.nodes()
        ]  # fmt: skip
        return {"nodes": nodes, "groups": self._groups_of_ours()}

    def _groups_of_ours(self) -> dict[str, Any]:
        found = {}
        for entry in self._groups.placement_group_table().values():
            owner, _, run = entry["name"].partition("/")
            if owner != self._namespace or entry["state"] == "REMOVED":
                continue
            count = len(entry["bundles"])
            places = entry["bundles_to_node_id"]
            found[run] = {
                "state": entry["state"],
                "parts": [self._part_of(run, rank) for rank in range(count)],
                "held": [
                    [places.get(number, ""), bundle.get("GPU", 0.0)]
                    for number, bundle in entry["bundles"].items()
                ],
            }
        for run in self._parts.keys() - found.keys():
            self._drop(run)
        return found

    def _part_of(self, run: str, rank: int) -> dict[str, Any]:
        watched = self._parts.setdefault(run, {})
        if rank not in watched:
            try:
                actor = self._ray.get_actor(f"{run}/{rank}", namespace=self._namespace)
            except ValueError:  # it was never made, or is dead: who is dead has no name
                return {"state": "none"}
            watched[rank] = WatchedPart(actor, self._heard)
        return watched[rank].state

    def _drop(self, run: str) -> dict[int, WatchedPart]:
        """Listen to its parts no longer."""
        parts = self._parts.pop(run, {})
        for part in parts.values():
            part.closed = True
        return parts

    # --- what is to be done -----------------------------------------------------------------------

    def create(self, ask: dict[str, Any]) -> None:
        """Make the group of a run and all its actors; Ray starts them when there is room."""
        run, parts = ask["run"], ask["parts"]
        group = self._groups.placement_group(
            [part["bundle"] or {"CPU": LEAST_CPU} for part in parts], strategy="PACK",
            name=f"{self._namespace}/{run}", lifetime="detached",
            bundle_label_selector=[{NODE_ID: part["node"]} for part in parts],
        )  # fmt: skip
        self._parts[run] = {}
        for rank, part in enumerate(parts):
            bundle = dict(part["bundle"])
            chosen = {"num_gpus": bundle.pop("GPU", 0), "num_cpus": bundle.pop("CPU", 0)}
            if "memory" in bundle:
                chosen["memory"] = bundle["memory"]
            told = json.dumps({**part["asked"], "shim": ask["shim"]}).encode()
            actor = self._actor.options(
                name=f"{run}/{rank}", namespace=self._namespace, lifetime="detached",
                scheduling_strategy=self._inside(group, placement_group_bundle_index=rank),
                **chosen,
            ).remote(zlib.compress(told))  # fmt: skip
            self._parts[run][rank] = WatchedPart(actor, self._heard)

    def stop(self, ask: dict[str, Any]) -> None:
        """Ask a part to end; the answer is not waited for."""
        watched = self._parts.get(ask["run"], {}).get(ask["rank"])
        if watched is not None:
            watched.actor.stop.remote(ask["how"])

    def read(self, ask: dict[str, Any]) -> list[Any]:
        """A piece of the output of a part, and where it begins."""
        watched = self._parts.get(ask["run"], {}).get(ask["rank"])
        if watched is None or watched.state["state"] in ("gone", "waiting"):
            return [ask["offset"], ""]
        piece = watched.actor.read.remote(ask["name"], ask["offset"], ask["limit"])
        at, data = self._ray.get(piece, timeout=ANSWER_S)
        return [at, base64.b64encode(data).decode()]

    def remove(self, ask: dict[str, Any]) -> None:
        """Remove the group of a run, and with it its actors."""
        parts = self._drop(ask["run"])
        left = [each.actor.leave.remote() for each in parts.values() if settled(each.state)]
        if left:
            with contextlib.suppress(Exception):  # what is left lies on the node, no more
                self._ray.get(left, timeout=ANSWER_S)
        try:
            group = self._groups.get_placement_group(f"{self._namespace}/{ask['run']}")
        except ValueError:
            return  # it is gone
        self._groups.remove_placement_group(group)


def settled(state: dict[str, Any]) -> bool:
    """Is the job of a part over, and its actor still there?"""
    return state["state"] in ("ended", "lost")


def brief(error: BaseException) -> str:
    """The first lines of what Ray has to say."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = next((line for line in lines if line.startswith("The actor is dead")), "")
    return (told or " ".join(lines) or type(error).__name__)[:MOST_WHY]


def reach(address: str) -> None:
    """Raise if nobody listens at HOST:PORT: Ray itself would try for a long while."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S):
            pass


def connect(address: str, namespace: str) -> Any:
    """Join the Ray cluster."""
    reach(address)
    import ray

    ray.init(
        address=address, namespace=namespace, log_to_driver=False, configure_logging=False,
        include_dashboard=False,
    )  # fmt: skip
    return ray


def listen(lines: TextIO, heard: queue.Queue[Any]) -> None:
    """Take in requests until there is no daemon any more."""
    for line in lines:
        heard.put((None, json.loads(line)))
    os._exit(0)


def main() -> int:
    """Serve the daemon on our standard input and output."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Ray writes there

    def say(**what: Any) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    asked = json.loads(sys.stdin.readline() or "null") or sys.exit(0)
    held = os.open(asked["lock"], os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)  # the bridge of a daemon that was killed may still be at work
    heard: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=listen, args=(sys.stdin, heard), daemon=True).start()
    try:
        ray = connect(asked["address"], asked["namespace"])
        bridge = Bridge(ray, asked["namespace"], heard)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is told
        say(id=0, error=f"{type(error).__name__}: {error}")
        return 1
    say(id=0, answer={"ray": ray.__version__, "python": sys.version.split()[0]})
    while True:
        who, what = heard.get()
        if who is not None:
            if who.hear(what):
                say(news=True)
            continue
        try:
            answer = bridge.carry_out(what)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            say(id=what["id"], error=f"{type(error).__name__}: {brief(error)}")
        else:
            say(id=what["id"], answer=answer)


if __name__ == "__main__":
    os._exit(main())  # Ray would take its time
