"""How the jobs of a machine are kept apart: accounts, namespaces, devices, limits.

An agent that is root runs every job as the account of its owner. One that is not can only make
namespaces: its jobs do not see each other, but all have its own account. Both take bubblewrap.
"""

import fnmatch
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from rota.core.errors import OptionError
from rota.live.agent import shim
from rota.live.agent.messages import LaunchPart

IsolationMode: TypeAlias = Literal["auto", "required", "off"]
MODES: tuple[IsolationMode, ...] = ("auto", "required", "off")
PROCESSES = 16_384
NOLOGIN = "/bin/bash"
TRY_S = 60.0  # only a guard against hanging

ROOM = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/opengl-driver")
"""What of /run a job may see: the rest is sockets of services."""
PRIVATE = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - each job has its own
KEPT = (
    "PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*",
    "GLOO_*", "OMP_*", "ROCM_*", "HIP_*",
)  # fmt: skip
"""Variables of the agent that a job of another account inherits: others may be secrets."""
FOR_ALL = (
    "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps",
    "nvidia-nvswitchctl", "infiniband", "kfd", "dri",
)  # fmt: skip
"""Devices that are not one GPU's."""


class JobAccount(msgspec.Struct, frozen=True):
    """Who a job is on this machine. `own`: whoever runs the agent, so its files are the job's."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = ""
    own: bool = False

    @classmethod
    def of_agent(cls) -> "JobAccount":
        """The account of this process."""
        uid = os.geteuid()
        known = _known(uid)
        name, home = (known.pw_name, known.pw_dir) if known else (str(uid), "")
        return cls(uid, os.getegid(), tuple(os.getgroups()), name, home, own=True)

    @classmethod
    def named(cls, text: str) -> "JobAccount":
        """An account of this machine, or the number of one that it need not know.

        Raises:
            OptionError: There is none, or nobody's jobs may run as it.
        """
        if text.isdecimal():
            uid = int(text)
            known = _known(uid)
            if known is None:
                _refuse_root(text, uid)
                return cls(uid, uid, (), f"rota{uid}")
        else:
            try:
                known = pwd.getpwnam(text)
            except KeyError:
                raise OptionError(
                    f"this machine has no account {text!r}: make it, or change isolation.users"
                ) from None
        _refuse_root(text, known.pw_uid)
        groups = tuple(os.getgrouplist(known.pw_name, known.pw_gid))
        return cls(known.pw_uid, known.pw_gid, groups, known.pw_name, known.pw_dir)


def _known(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _refuse_root(text: str, uid: int) -> None:
    if uid == 0:
        raise OptionError(f"account {text!r}: jobs of others are never run as root")


class Sandbox:
    """Makes the boxes in which an agent runs jobs.

    `hidden` are folders that no job may see (but for its own in there), `secrets` files, `visible`
    folders that it shall see although they are in a private or hidden one. `embedded`: the agent
    lives in the daemon, so whoever owns that owns this machine's account, too.
    """

    def __init__(
        self,
        hidden: Iterable[Path],
        *,
        secrets: Iterable[Path] = (),
        visible: Iterable[str] = (),
        environment: Iterable[str] = (),
        processes: int = PROCESSES,
        embedded: bool = False,
    ) -> None:
        self.own = JobAccount.of_agent()
        self.separates: Literal["accounts", "namespaces"] = (
            "namespaces" if self.own.uid else "accounts"
        )
        self._hidden = sorted({path.resolve() for path in hidden})
        self._secrets = [path.resolve() for path in secrets]
        self._visible = list(visible)
        self._kept = (*KEPT, *environment)
        self._processes = processes
        self._embedded = embedded

    def account(self, order: LaunchPart) -> JobAccount:
        """Who a job is here.

        Raises:
            OptionError: It may not run here.
        """
        if self.own.uid:  # nobody else can be had
            own = order.of_owner or order.account in (self.own.name, str(self.own.uid))
            return self.own if own else msgspec.structs.replace(self.own, own=False)
        if order.of_owner and self._embedded:
            return self.own
        if not order.account:
            raise OptionError(
                "the server does not say whose job it is (is it older than this agent?), and it is "
                "not run as root"
            )
        return JobAccount.named(order.account)

    def refusal(self, order: LaunchPart) -> str:
        """Why a job cannot run here; empty: it can."""
        try:
            self.account(order)
        except OptionError as error:
            return str(error)
        return ""

    def inherited(self, account: JobAccount) -> list[str] | None:
        """Names of the variables that a job may inherit; None: all of them."""
        if account.own:
            return None
        return [n for n in os.environ if any(fnmatch.fnmatchcase(n, kept) for kept in self._kept)]

    def variables(self, account: JobAccount, work: Path) -> dict[str, str]:
        """What a job of another account needs to know of itself."""
        if account.own:
            return {}
        home = account.home if self.separates == "accounts" else ""
        return {
            "HOME": home or str(work), "USER": account.name, "LOGNAME": account.name,
            "SHELL": NOLOGIN,
        }  # fmt: skip

    def box(
        self,
        account: JobAccount,
        folders: Sequence[Path],
        *,
        temporary: Path,
        workdir: Path,
        devices: Sequence[str],
        limits: Mapping[str, float],
    ) -> dict[str, Any]:
        """What a shim needs to know: see `rota.live.agent.shim.Box`.

        `folders`: its own, which it sees. `temporary`: its /tmp and /var/tmp are in there.
        """
        argv = self._argv(account, folders, temporary, workdir, devices)
        return {**self.rights(account, limits), "argv": argv, "inherit": self.inherited(account)}

    def rights(self, account: JobAccount, limits: Mapping[str, float]) -> dict[str, Any]:
        """Who a job is in its box, and what it may use."""
        return {
            **own_box(account),
            "switch": account.uid != self.own.uid,  # or it stays who the agent is
            "limits": {**limits, "processes": self._processes},
        }

    def _argv(
        self,
        account: JobAccount,
        folders: Sequence[Path],
        temporary: Path,
        workdir: Path,
        devices: Sequence[str],
    ) -> list[str]:
        writable = account.own or account.uid != self.own.uid
        argv = [str(shutil.which("bwrap")), "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
        if self.own.uid:
            argv.append("--unshare-user")
        argv += ["--bind" if writable else "--ro-bind", "/", "/", "--proc", "/proc"]
        argv += ["--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - its own
        for device in devices:
            argv += ["--dev-bind", device, device]
        argv += ["--bind", str(temporary / "tmp"), "/tmp"]  # noqa: S108 - its own
        argv += ["--bind", str(temporary / "var"), "/var/tmp", "--tmpfs", "/run"]  # noqa: S108
        for room in ROOM:
            argv += ["--ro-bind-try", room, room]
        empty = [*map(Path, PRIVATE), *self._closed(account, folders)]
        for closed in empty[len(PRIVATE) :]:
            argv += ["--tmpfs", str(closed)]
        # of others it must be reachable without our help: a link there could lead anywhere
        for shown in sorted({*self._visible, *([str(workdir)] if account.own else ())}):
            if Path(shown).is_dir() and Path(shown).resolve() != Path("/"):
                argv += [*_way(Path(shown), empty), "--bind", shown, shown]
        return argv + self._masks(folders, empty)

    def _masks(self, folders: Sequence[Path], empty: list[Path]) -> list[str]:
        """What nobody may see, and on top of it what this job may."""
        argv = []
        for hidden in self._hidden:
            argv += [*_way(hidden, empty), "--tmpfs", str(hidden)]
        for secret in self._secrets:
            if secret.exists() and not any(secret.is_relative_to(path) for path in self._hidden):
                argv += [*_way(secret, empty), "--ro-bind", os.devnull, str(secret)]
        for folder in folders:
            argv += [*_way(folder, [*empty, *self._hidden]), "--bind", str(folder), str(folder)]
        return argv

    def _closed(self, account: JobAccount, folders: Sequence[Path]) -> list[Path]:
        """Folders that it cannot enter on the way to its own, and somebody else's home."""
        closed = set()
        if not account.own and account.uid == self.own.uid and self.own.home not in ("", "/"):
            closed.add(Path(self.own.home).resolve())
        for folder in folders:
            for above in folder.resolve().parents:
                if any(above.is_relative_to(hidden) for hidden in self._hidden):
                    continue
                status = above.stat()
                if status.st_uid != account.uid and not status.st_mode & 0o001:
                    closed.add(above)
        return sorted(path for path in closed if path != Path("/") and path.is_dir())


def own_box(account: JobAccount) -> dict[str, Any]:
    """Who a job is that may do all that its account may."""
    return {
        "switch": False,
        "uid": account.uid,
        "gid": account.gid,
        "groups": list(account.groups),
        "limits": {},
        "rlimits": {},
    }


def _way(path: Path, empty: Sequence[Path]) -> list[str]:
    """Make the folders above a path that is in one which was made empty, so that all may pass."""
    argv = []
    for above in reversed(path.parents):
        if any(above != top and above.is_relative_to(top) for top in empty):
            argv += ["--perms", "0755", "--dir", str(above)]
    return argv


def gpu_devices(gpus: Sequence[str], root: Path = Path("/")) -> tuple[list[str], bool]:
    """Device files of these GPUs, and are they told apart?

    If they are, a job finds only its own, and CUDA counts those from 0. They are as long as the
    driver says which file is whose (`/proc/driver/nvidia`); other makers' GPUs are not.
    """
    dev = root / "dev"
    shared = [f"/dev/{name}" for name in FOR_ALL if (dev / name).exists()]
    all_of_them = sorted(path.name for path in dev.glob("nvidia[0-9]*"))
    if not gpus:
        return [path for path in shared if path.endswith("infiniband")], False
    minors = _minors(root)
    if all_of_them and all(gpu.isdecimal() and int(gpu) < len(minors) for gpu in gpus):
        own = [f"/dev/nvidia{minors[int(gpu)]}" for gpu in gpus]
        return [*own, *shared], True
    return [*(f"/dev/{name}" for name in all_of_them), *shared], False


def _minors(root: Path) -> list[str]:
    """The number of each GPU's device file, in the order of their addresses on the bus."""
    found = []
    for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information")):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Device Minor":
                found.append(value.strip())
    return found


def obstacle() -> str:
    """Why this machine cannot keep jobs apart, with a remedy; empty: it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed: install it (Debian, Ubuntu, Fedora: `bubblewrap`)"
    boxes = Sandbox([])
    order = boxes.box(
        boxes.own, [], temporary=Path("/nowhere"), workdir=Path("/"), devices=(), limits={}
    )
    argv = order["argv"]
    for folder in ("/tmp", "/var/tmp"):  # noqa: S108 - it is made, not used
        at = argv.index(folder)
        argv[at - 2 : at + 1] = ["--tmpfs", folder]
    try:
        tried = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", shim.__file__, shim.TRY, json.dumps(order)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRY_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a sandbox cannot be tried: {error}"
    if tried.returncode == 0:
        return ""
    why = (tried.stderr.strip().splitlines() or ["no reason is given"])[0]
    remedy = "allow user namespaces (sysctl user.max_user_namespaces), or run the agent as root"
    if os.geteuid() == 0:
        remedy = "a container needs the right to make namespaces (CAP_SYS_ADMIN)"
    return f"a sandbox cannot be made ({why}): {remedy}"


def may_isolate(mode: IsolationMode) -> tuple[bool, str]:
    """Shall jobs be kept apart, and why not, if that was not said.

    Raises:
        OptionError: They must be, and cannot.
    """
    if mode == "off":
        return False, ""
    why = obstacle()
    if why and mode == "required":
        raise OptionError(f"isolation required: {why}")
    return not why, why
