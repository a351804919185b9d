"""One part of a run on this machine, as its agent sees it: a folder and a shim."""

import contextlib
import json
import logging
import math
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rota.core.launch import Launch
from rota.live.agent import environment, processes, shim
from rota.live.agent.containers import ContainerEngine, mounts_for, remove_container
from rota.live.agent.devices import Share
from rota.live.agent.folders import (
    SEEN,
    TEMPORARY,
    AgentFolder,
    last_sign,
    read_moment,
    read_record,
    without_shim,
    write_end,
)
from rota.live.agent.messages import (
    HALT,
    KILL,
    OVER,
    AgentNode,
    LaunchPart,
    PartKey,
    PartState,
    PartStatus,
    PartTerms,
)
from rota.live.agent.sandbox import JobAccount, Sandbox, gpu_devices, own_box
from rota.live.clock import boot_time_s

log = logging.getLogger("rota.agent")

LOG_LIMIT, LOG_KEEP = 64 << 20, 3  # bytes of an output file, and how many older ones are kept
REPORT_TAIL, REPORT_LIMIT = 1 << 16, 4 << 20  # bytes of the file of reports
FILE, SECRETS_DIR = "file:", "ROTA_SECRETS_DIR"
VALUES_KEPT, NAME_LENGTH = 64, 100  # of what a job reports
EXCESS = "excess"  # the file that tells the shim of too much GPU memory
PAUSED = "paused"  # the file that says that its processes have been stopped for a while
ABOUT = "part.json"  # what the agents after this one need to know


def secret_names(launch: Launch) -> list[str]:
    """Of all secrets of a job, those in files too."""
    return [item.removeprefix(FILE) for item in launch.secrets]


class LocalPart:
    """What became of a part. `look` notices changes, the folder survives the agent."""

    def __init__(self, key: PartKey, root: AgentFolder, boot: str) -> None:
        self.key = key
        self.launch: LaunchPart | None = None
        self.node = ""
        self.shares: list[Share] = []
        self.gpu_mem_gib = 0.0  # that it may use of each of its GPUs; 0: nobody said
        self.terms = PartTerms(key)
        self.state: PartState = "waiting"
        self.told = self.why = ""
        self.code = 0
        self.ran = self.asked = self.timed_out = False
        self.began_s: float | None = None  # by `boot_time_s`, like its end
        self.ended_s: float | None = None
        self.forgotten = False
        self.puzzle = ""  # the error of the last look that failed
        self.hook_problem = ""  # why the prolog or the epilog failed
        self.pidfd = -1
        self.process: subprocess.Popen[bytes] | None = None
        self._root, self._boot = root, boot
        self._folder = root.folder(key)
        self._mark = ""  # ROTA_RUN_KEY
        self._cgroup = ""
        self._read_to = 0  # in the file of reports
        self._wants: tuple[str, str] = ("", "")  # to stop: how, on whose account; not on disk yet
        self._paused: bool | None = False  # None: an agent before this one may have

    @property
    def shim_pid(self) -> int:
        """Of the process that started it; 0 if nobody knows."""
        return int(read_record(self._folder, "identity.json").get("pid", 0))

    @property
    def over(self) -> bool:
        """Is nothing left of it?"""
        return self.state in OVER

    @property
    def restless(self) -> bool:
        """Does it need another look soon, without being asked?"""
        gone = self.pidfd < 0 and self.state in ("starting", "running")
        return self.forgotten or bool(self._wants[0]) or (gone and self.process is None)

    def status(self) -> PartStatus:
        """What the server is told."""
        told = self._wants[0] or self.told
        return PartStatus(
            self.key, self.state, told, self.ran, self.code, self.asked, self.why,
            self.began_s, self.ended_s, self.timed_out,
            self.terms if self.state in ("starting", "running") else None,
        )  # fmt: skip

    # --- beginning ----------------------------------------------------------------------------

    @classmethod
    def found(cls, folder: Path, root: AgentFolder, boot: str) -> "LocalPart | None":
        """A part that an earlier agent left; None for a folder that cannot be read."""
        about = read_record(folder, ABOUT)
        try:
            part = cls(PartKey(str(about["run"]), int(about["node_rank"])), root, boot)
        except (KeyError, ValueError, TypeError):
            return None
        part.state = "starting"
        part.node, part._mark = str(about.get("node", "")), str(about.get("key", ""))
        part.shares = [(int(device), float(amount)) for device, amount in about.get("shares", ())]
        part.gpu_mem_gib = float(about.get("gpu_mem_gib", 0.0))
        weight, limit, paused = about.get("terms", (0.0, 0.0, False))
        part.terms = PartTerms(part.key, float(weight), float(limit), bool(paused))
        part._paused = None if (folder / PAUSED).exists() else False
        how = shim.read(str(folder / "stop")).split()
        part.told = how[0] if how else ""
        return part if part._folder == folder else None

    def spawn(
        self,
        launch: LaunchPart,
        node: AgentNode,
        shares: Sequence[Share],
        *,
        fenced: bool,
        sandbox: Sandbox | None = None,
        containers: ContainerEngine | None = None,
    ) -> None:
        """Make its folder, then start its shim: from now on it is never started again.

        OSError: nothing happened, it may be tried again.
        """
        self._mark = secrets.token_hex(8)
        account = sandbox.account(launch) if sandbox is not None else None
        owner = (account.uid, account.gid) if account is not None else None
        folders = self._root.job_folders(launch.job, owner)
        devices = [node.devices[number] for number, _ in sorted(shares)]
        if launch.launch.image and containers is not None:
            order = self._contained(launch, devices, folders, sandbox, containers)
        elif sandbox is None or account is None:
            order = self._order(launch, devices, folders)
        else:
            order = self._boxed(launch, devices, folders, sandbox, account)
        order["lease"] = str(self._root.lease) if fenced else ""
        limits = environment.of_mps(launch.part, node, shares)
        order["env"] = {**limits, **order["env"]}  # as of all variables, those of the job win
        self.gpu_mem_gib = launch.part.gpu_mem_gib
        self.terms = PartTerms.of(self.key, launch.part)
        texts = {
            "order.json": json.dumps(order),
            ABOUT: json.dumps(self._about(launch, shares)),
            f"{SEEN}/setup.sh": launch.launch.setup,
            f"{SEEN}/run.sh": launch.launch.run,
            f"{SEEN}/pre_stop.sh": launch.launch.pre_stop,
        }
        for item in launch.launch.secrets:
            if item.startswith(FILE):
                name = item.removeprefix(FILE)
                texts[f"{SEEN}/{name}"] = launch.secrets[name]
                order["env"][SECRETS_DIR] = str(self._folder / SEEN)
        values = {n: launch.secrets[n] for n in launch.launch.secrets if not n.startswith(FILE)}
        texts["order.json"] = json.dumps(order)
        if values:
            texts[shim.SECRETS] = json.dumps(values)
        self._root.create(self.key, texts, owner)
        self.state = "starting"
        self.shares = list(shares)
        try:
            with (self._folder / "shim.err").open("wb") as errors:
                self.process = subprocess.Popen(  # noqa: S603 - our own script
                    [sys.executable, "-I", "-S", self._root.shim, str(self._folder)],
                    env=environment.inherited(),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            self.pidfd = os.pidfd_open(self.process.pid)
        except OSError as error:
            log.warning("shim.failed", extra={"run": self.key.run, "why": str(error)})

    def _order(
        self, launch: LaunchPart, devices: Sequence[str], folders: Mapping[str, Path]
    ) -> dict[str, Any]:
        """For the shim."""
        workdir = folders["work"] / launch.launch.workdir
        checkpoint = folders["checkpoint"]
        if launch.launch.checkpoint_dir:
            checkpoint = workdir / launch.launch.checkpoint_dir
        env = environment.common(
            launch,
            devices,
            checkpoint=checkpoint,
            report=self._folder / SEEN / "report",
            key=self._mark,
        )
        unset = {"LC_CTYPE"} - {*os.environ, *env}  # Python adds it for itself
        return {
            "key": self._mark,
            "name": self.key.run,
            "setup": f"{SEEN}/setup.sh" if launch.launch.setup.strip() else "",
            "run": f"{SEEN}/run.sh",
            "workdir": str(workdir),
            "make": [str(checkpoint)] if launch.launch.checkpoint_dir else [],
            "env": env,
            "unset": sorted(unset),
            "processes": [
                environment.of_process(launch, devices, number)
                for number in range(launch.part.processes)
            ],
            "terminal": launch.launch.terminal,
            "grace_s": launch.launch.grace_s,
            "limit_s": launch.limit_s,
            "warn_s": launch.launch.warn_s,
            "warn_signal": launch.launch.warn_signal,
            "pre_stop": f"{SEEN}/pre_stop.sh" if launch.launch.pre_stop.strip() else "",
            "hooks": self._hooks(launch, devices),
            "out": str(folders["logs"] / f"{self.key.node_rank}.out"),
            "err": str(folders["logs"] / f"{self.key.node_rank}.err"),
            "order": str(folders["logs"] / f"{self.key.node_rank}.order"),
            "log_limit": LOG_LIMIT,
            "log_keep": LOG_KEEP,
            "wake": str(self._root.wake),
        }

    def _hooks(self, launch: LaunchPart, devices: Sequence[str]) -> dict[str, Any]:
        """Commands of the operator around the job; nothing that the job says gets there."""
        return {
            **self._root.hooks,
            "env": {
                "ROTA_JOB_ID": launch.job,
                "ROTA_RUN_ID": launch.run,
                "ROTA_JOB_USER": launch.user,
                "ROTA_NODE_NAME": launch.part.node,
                environment.VISIBLE: ",".join(devices),
            },
        }

    def _boxed(
        self,
        launch: LaunchPart,
        devices: Sequence[str],
        folders: Mapping[str, Path],
        sandbox: Sandbox,
        account: JobAccount,
    ) -> dict[str, Any]:
        """For the shim of a job that is kept apart."""
        files, told_apart = gpu_devices(devices)
        if told_apart:  # whoever sees only some counts those
            devices = [str(number) for number in range(len(devices))]
        order = self._order(launch, devices, folders)
        order["env"] = {**sandbox.variables(account, folders["work"]), **order["env"]}
        order["box"] = sandbox.box(
            account,
            [folders["work"], folders["checkpoint"], self._folder / SEEN],
            temporary=self._folder / TEMPORARY,
            workdir=Path(order["workdir"]),
            devices=files,
            limits={"cpus": launch.part.cpus, "mem_gib": launch.part.mem_gib},
        )
        return order

    def _contained(
        self,
        launch: LaunchPart,
        devices: Sequence[str],
        folders: Mapping[str, Path],
        sandbox: Sandbox | None,
        engine: ContainerEngine,
    ) -> dict[str, Any]:
        """For the shim of a job that has an image."""
        account = JobAccount.of_agent() if sandbox is None else sandbox.account(launch)
        options, told_apart = engine.devices(devices)
        if told_apart:  # whoever sees only some counts those
            devices = [str(number) for number in range(len(devices))]
        order = self._order(launch, devices, folders)
        own = [folders["work"], folders["checkpoint"], self._folder / SEEN]
        workdir = Path(order["workdir"])
        mounts = mounts_for(engine, account, own, workdir)
        home = account.home if account.home in mounts else str(folders["work"])
        order["env"] = {"HOME": home, "USER": account.name, **order["env"]}
        limits = {"cpus": launch.part.cpus, "mem_gib": launch.part.mem_gib}
        box = own_box(account) if sandbox is None else sandbox.rights(account, limits)
        order["box"] = box | {
            "image": launch.launch.image,
            **engine.box(
                launch.launch.image, account, mounts, options, key=self._mark, folder=self._folder
            ),
        }
        return order

    def _about(self, launch: LaunchPart, shares: Sequence[Share]) -> dict[str, Any]:
        """For the agents after this one."""
        return {
            "run": self.key.run,
            "node_rank": self.key.node_rank,
            "node": launch.part.node,
            "key": self._mark,
            "shares": list(shares),
            "gpu_mem_gib": launch.part.gpu_mem_gib,
            "terms": self.terms.said,
        }

    # --- watching -----------------------------------------------------------------------------

    def look(self) -> bool:
        """Notice what happened; did anything?"""
        before = self.state, self.told, self.ran
        self._stop()
        if self.state in ("starting", "running"):
            # first the process, then the record: a shim that ended has written it before
            gone = self._gone()
            end = read_record(self._folder, "exit.json")
            if not self.ran and (self._folder / "running").exists():
                self.state, self.ran = "running", True
                self.began_s = self._moment(read_moment(self._folder))
            if end:
                self._finish(end)
            elif gone:
                self._clean_up()
        if self.process is not None and self.process.poll() is not None:
            self.process = None
        self.puzzle = ""
        return (self.state, self.told, self.ran) != before

    def _gone(self) -> bool:
        if self.pidfd < 0:
            identity = read_record(self._folder, "identity.json")
            self.pidfd = processes.open_process(identity, self._boot)
            if self.pidfd < 0:
                if not self._folder.is_dir():  # a job may remove what its agent may read
                    return True
                with without_shim(self._folder) as none:
                    return none
        if not self._cgroup:
            self._cgroup = str(read_record(self._folder, "identity.json").get("cgroup", ""))
        return processes.has_ended(self.pidfd)

    def _finish(self, end: Mapping[str, Any]) -> None:
        self.state = "lost" if end.get("lost") else "ended"
        self.code, self.asked = int(end.get("code", 0)), bool(end.get("asked"))
        self.ran = bool(end.get("ran", self.ran))
        self.timed_out = bool(end.get("timed_out"))
        self.hook_problem = str(end.get("hook_problem", ""))
        self.why = str(end.get("lost") or end.get("why", ""))
        if self.ran and end.get("began"):
            self.began_s = self._moment(end["began"])
        self.ended_s = self._moment(end)
        self._close()

    def _moment(self, record: Mapping[str, Any]) -> float | None:
        """A moment of a record on our `boot_time_s`; the time of day helps over a reboot."""
        if record.get("boot") == self._boot and "clock" in record:
            return float(record["clock"])
        if "time" not in record:
            return None
        return boot_time_s() - (time.time() - float(record["time"]))

    def _clean_up(self) -> None:
        """Its shim died without a word: end what it left, then record that."""
        self._close()
        if not self._folder.is_dir():
            if not processes.kill_leftovers(self._cgroup, self._mark):
                self._finish({"lost": "the folder of its run was removed", "ran": self.ran})
            return
        identity = read_record(self._folder, "identity.json")
        cgroup = str(identity.get("cgroup", ""))
        same_boot = identity.get("boot") == self._boot
        if same_boot and processes.kill_leftovers(cgroup, self._mark):
            return  # to look again until none is left
        why = "its shim died" if same_boot else "the machine was restarted"
        if not identity:
            why = shim.read(str(self._folder / "shim.err")).strip()[-300:]
            why = f"its shim could not start: {why}" if why else "the agent died as it started it"
        with contextlib.suppress(OSError), without_shim(self._folder) as none:
            if none:
                remove_container(read_record(self._folder, "order.json"))
                end = {"lost": why, "code": 0, "ran": self.ran, **last_sign(self._folder)}
                write_end(self._folder, end)
                self._finish(end)
                for group in (cgroup, *identity.get("limits", ())):
                    if group:
                        Path(group).rmdir()

    def exceeds(self, how: str, why: str) -> None:
        """It uses more GPU memory than it may: `warn` it, once, or `stop` it."""
        path = self._folder / EXCESS
        if self.state != "running" or self.leaves or path.exists():
            return
        try:
            shim.write_whole(str(path), f"{how} {why}")
        except OSError as error:  # it will be seen again
            log.warning("excess.delayed", extra={"run": self.key.run, "why": str(error)})
            return
        log.warning("gpu_memory", extra={"run": self.key.run, "how": how, "why": why})
        if self.pidfd >= 0:
            processes.nudge(self.pidfd)

    # --- turns --------------------------------------------------------------------------------

    @property
    def leaves(self) -> bool:
        """Is it to end? Its shim knows that first if it has used up its time."""
        return bool(self._wants[0] or self.told) or (self._folder / shim.ENDS).exists()

    def agree(self, terms: PartTerms) -> None:
        """From now on it has its turns by these; the server tells the agents after us, too."""
        if self.over or terms == self.terms:
            return
        self.terms = terms
        about = {**read_record(self._folder, ABOUT), "terms": terms.said}
        try:
            shim.write_whole(str(self._folder / ABOUT), json.dumps(about))
        except OSError as error:
            log.warning("terms.delayed", extra={"run": self.key.run, "why": str(error)})

    def pause(self) -> None:
        """Stop its processes until `go_on`; the folder says so first, for the agents after us.

        Called in every turn that it waits: whoever was missed is stopped then.
        """
        if self._paused is not True:
            try:
                (self._folder / PAUSED).touch()
            except OSError as error:
                log.warning("pause.delayed", extra={"run": self.key.run, "why": str(error)})
                return
        self._paused = True
        processes.stop_job(self.shim_pid, self._cgroup, self._own())

    def go_on(self) -> None:
        """Let its processes go on, if they were stopped."""
        if self._paused is not False and not self.over:
            processes.continue_job(self.shim_pid, self._cgroup)
            self._paused = False

    def _own(self) -> frozenset[int]:
        """Processes of its shim that are not the job's: they hold its box, or a way into it."""
        pids = shim.read(str(self._folder / shim.OWN)).split()
        return frozenset(map(int, filter(str.isdecimal, pids)))

    # --- ending -------------------------------------------------------------------------------

    def stop(self, how: str, account: str = "") -> None:
        """Ask it to end. To halt what is being killed changes nothing."""
        if not self.over and self.told != KILL and (self.told, how) != (HALT, HALT):
            self._wants = how, account
            self._stop()

    def _stop(self) -> None:
        """Put the wish on disk; tried again when there is no space."""
        how, account = self._wants
        if not how:
            return
        try:
            if self.state == "waiting":
                self._never()
            elif not self.over:
                shim.write_whole(str(self._folder / "stop"), f"{how} {account}".strip())
                if self.pidfd >= 0 and (self._folder / "identity.json").exists():
                    processes.nudge(self.pidfd)
        except OSError as error:
            if how == KILL and self.pidfd >= 0:  # without a word, and then the leftovers
                shim.send(signal.pidfd_send_signal, self.pidfd, signal.SIGKILL)
            if not self._folder.is_dir():  # then SIGTERM alone says it: no file can
                if how == HALT and self.pidfd >= 0:
                    shim.send(signal.pidfd_send_signal, self.pidfd, signal.SIGTERM)
                self.told, self._wants = how, ("", "")
                return
            log.warning("stop.delayed", extra={"run": self.key.run, "why": str(error)})
            return
        self.told, self._wants = how, ("", "")

    def _never(self) -> None:
        """It has not been started: make sure that it never is."""
        about = {"run": self.key.run, "node_rank": self.key.node_rank}
        end = {"asked": True, "why": "it was never started", "lost": self._wants[1]}
        with contextlib.suppress(FileExistsError):
            self._root.create(self.key, {ABOUT: json.dumps(about), "exit.json": json.dumps(end)})
        self._finish(end)

    def refuse(self, why: str) -> None:
        """It cannot run here."""
        self.state, self.why = "lost", why

    def fail(self, why: str) -> None:
        """It can never run, wherever: that is the end of its run."""
        self.state, self.code, self.why = "ended", shim.NOT_STARTED, why

    def _close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def abandon(self) -> None:
        """The agent ends; the part goes on."""
        self._close()
        if self.process is not None and self.process.poll() is None:
            self.process.returncode = 0  # not our child for long: it is not waited for

    # --- reports ------------------------------------------------------------------------------

    def measured(self) -> dict[str, float]:
        """What the job has reported since the last time."""
        path = self._folder / SEEN / "report"
        if not path.parent.is_dir():  # made by an agent of version 0.2 or before
            path = self._folder / "report"
        # the file is the job's, which may put anything in its place: a link to our own files, a
        # pipe that keeps us waiting
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with shim.opened(str(path), flags) as fd:
                status = os.fstat(fd)
                size = status.st_size
                if size == self._read_to or not stat.S_ISREG(status.st_mode):
                    return {}
                start = max(self._read_to if size > self._read_to else 0, size - REPORT_TAIL)
                data = os.pread(fd, REPORT_TAIL, start)
                whole = data[: data.rfind(b"\n") + 1]
                self._read_to = start + len(whole)
                if self._read_to > REPORT_LIMIT:
                    os.ftruncate(fd, 0)
                    self._read_to = 0
        except OSError:
            return {}
        values: dict[str, float] = {}
        for line in whole.splitlines():
            values |= _numbers(line)
        return dict(list(values.items())[:VALUES_KEPT])


def _numbers(line: bytes) -> dict[str, float]:
    """Named numbers in a line; a line that is something else counts for nothing."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(record, dict):
        return {}
    numbers: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, int | float) and len(name) <= NAME_LENGTH:
            with contextlib.suppress(OverflowError):  # an integer may have any length
                numbers[name] = float(value)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
