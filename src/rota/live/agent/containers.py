"""Images: which engine of this machine makes containers of them, and how.

A container is a box of a run like that of a sandbox (`rota.live.agent.shim.ContainerBox`): the
engine makes it and only waits, and the processes of the job enter it. So signals, exit codes,
limits, accounts and ways into the job are the same with and without.
"""

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rota.core.errors import OptionError
from rota.core.launch import CONTAINER, SIF
from rota.live.agent.environment import inherited
from rota.live.agent.sandbox import JobAccount, gpu_devices

ContainerMode: TypeAlias = Literal["auto", "podman", "apptainer", "off"]
MODES: tuple[ContainerMode, ...] = ("auto", "podman", "apptainer", "off")
HOLD = "exec 3<&0; (read _) <&3 & echo; wait"
"""What a container does: say that it is there, reap, and end when its input does."""
TRY_S = 120.0  # only a guard against hanging
REMOVE_S = 30.0  # a machine whose engine hangs has other troubles
FILES, PROCESSES = 1024, 32_768  # limits of the process that waits, which the job does not have
CDI = ("etc/cdi", "run/cdi", "var/run/cdi")
NVIDIA = "nvidia.com/gpu"
MISSING = "install podman (as root: `apt-get install podman crun`) or apptainer"


class ContainerEngine:
    """Makes containers on this machine. `visible`: folders of the host that every job may see."""

    kind: Literal["podman", "apptainer"]
    labels: tuple[str, ...] = (CONTAINER,)

    def __init__(self, program: str, visible: Iterable[str] = (), root: Path = Path("/")) -> None:
        self.program = program
        self.visible = [str(Path(path).resolve()) for path in visible]
        self.root = root

    def refusal(self, image: str, account: JobAccount) -> str:
        """Why no container of this image is made for this account; empty: it is.

        A folder or a file is opened by us: only where its owner may look, or everybody.
        """
        if not image.startswith("/"):
            return ""
        inside = any(Path(image).resolve().is_relative_to(shown) for shown in self.visible)
        if account.own or inside:
            return ""
        return (
            f"image {image}: a path can only be in a folder that --visible names, but for the "
            "agent's own account: put it there, or use an image of a registry"
        )

    def devices(self, gpus: Sequence[str]) -> tuple[list[str], bool]:
        """Options for these GPUs, and does a job see no others?"""
        raise NotImplementedError

    def box(
        self,
        image: str,
        account: JobAccount,
        mounts: Sequence[str],
        devices: Sequence[str],
        *,
        key: str,
        folder: Path,
    ) -> dict[str, Any]:
        """For the shim; `key`: of the run, `folder`: a place of its own."""
        raise NotImplementedError

    def try_out(self) -> str:
        """Why it cannot run anything here; empty: it did."""
        with tempfile.TemporaryDirectory(prefix="rota-container-") as folder:
            make_root(Path(folder))
            try:
                tried = subprocess.run(  # noqa: S603 - what the operator has installed
                    self.trial(folder), env=inherited(), stdin=subprocess.DEVNULL,
                    capture_output=True, text=True, timeout=TRY_S, check=False,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"{self.kind} cannot be tried: {error}"
        if tried.returncode == 0:
            return ""
        said = tried.stderr.strip().splitlines() or ["no reason is given"]
        return f"{self.kind} cannot run a container here ({said[-1][:200]})"

    def trial(self, folder: str) -> list[str]:
        """A command that runs `true` with a folder as its image."""
        raise NotImplementedError


class Podman(ContainerEngine):
    """Images of registries and folders. As root: for every account; else: all are the agent's."""

    kind = "podman"

    def devices(self, gpus: Sequence[str]) -> tuple[list[str], bool]:
        """By the specification of NVIDIA's toolkit where there is one: it brings the libraries."""
        files, told_apart = gpu_devices(gpus, self.root)
        if gpus and told_apart and self._has_cdi():
            return [f"--device={NVIDIA}={gpu}" for gpu in gpus], True
        return [f"--device={path}" for path in files], told_apart

    def _has_cdi(self) -> bool:
        for folder in CDI:
            for path in (self.root / folder).glob("*"):
                if path.suffix in (".yaml", ".json") and NVIDIA in path.read_text(errors="replace"):
                    return True
        return False

    def box(
        self,
        image: str,
        account: JobAccount,
        mounts: Sequence[str],
        devices: Sequence[str],
        *,
        key: str,
        folder: Path,
    ) -> dict[str, Any]:
        """One container for a run, with the host's network, in the cgroup that we are in."""
        pidfile = str(folder / "container.pid")
        argv = [
            self.program, "run", "--interactive", f"--name=rota-{key}", f"--pidfile={pidfile}",
            "--pull=missing", *self._options(), f"--env=ROTA_RUN_KEY={key}",
            *self._user(account), *(f"--volume={path}:{path}" for path in mounts), *devices,
            "--entrypoint=/bin/sh", *_podman_image(image), "-c", HOLD,
        ]  # fmt: skip
        remove = [self.program, "rm", "--force", "--ignore", "--time=0", f"rota-{key}"]
        env = {**inherited(), "ROTA_RUN_KEY": key}
        return {"argv": argv, "env": env, "pidfile": pidfile, "remove": remove}

    def _options(self) -> list[str]:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        processes = PROCESSES if most == resource.RLIM_INFINITY else min(PROCESSES, most)
        return [
            "--rm", "--cgroups=disabled", "--network=host", "--uts=host", "--shm-size=0",
            "--log-driver=none", "--cap-drop=all", "--security-opt=no-new-privileges",
            "--security-opt=label=disable", f"--ulimit=nofile={files}:{files}",
            f"--ulimit=nproc={processes}:{processes}",
        ]  # fmt: skip

    def _user(self, account: JobAccount) -> list[str]:
        if os.geteuid():
            return ["--userns=keep-id"]
        return [f"--user={account.uid}:{account.gid}"]

    def trial(self, folder: str) -> list[str]:
        """As a job would run, with the host's programs."""
        user = [] if os.geteuid() == 0 else ["--userns=keep-id"]
        volumes = [f"--volume={path}:{path}:ro" for path in _programs()]
        return [
            self.program, "run", *self._options(), *user, *volumes,
            "--rootfs", folder, "/bin/sh", "-c", "true",
        ]  # fmt: skip


def _podman_image(image: str) -> list[str]:
    name = image.removeprefix("docker://")
    return ["--rootfs", f"{name}:O"] if name.startswith("/") else [name]


class Apptainer(ContainerEngine):
    """Images of registries, folders and files (.sif); the agent starts it, jobs enter it."""

    kind = "apptainer"
    labels = (CONTAINER, SIF)

    def devices(self, gpus: Sequence[str]) -> tuple[list[str], bool]:
        """It brings driver and libraries of the host, and all GPUs."""
        if not gpus:
            return [], False
        found = {"--nv": "dev/nvidiactl", "--rocm": "dev/kfd"}
        return [option for option, path in found.items() if (self.root / path).exists()], False

    def box(
        self,
        image: str,
        account: JobAccount,  # noqa: ARG002 - everybody enters it
        mounts: Sequence[str],
        devices: Sequence[str],
        *,
        key: str,
        folder: Path,  # noqa: ARG002 - it notes no process
    ) -> dict[str, Any]:
        """One container for a run; images of registries are converted in the agent's cache."""
        argv = [
            self.program, "exec", *self._options(), f"--env=ROTA_RUN_KEY={key}",
            *(f"--bind={path}:{path}" for path in mounts), *devices, _apptainer_image(image),
            "/bin/sh", "-c", HOLD,
        ]  # fmt: skip
        env = {**inherited(), "ROTA_RUN_KEY": key}
        return {"argv": argv, "env": env, "pidfile": "", "remove": []}

    @staticmethod
    def _options() -> list[str]:
        return ["--containall", "--no-home", "--writable-tmpfs"]

    def trial(self, folder: str) -> list[str]:
        """As a job would run, with the host's programs."""
        binds = [f"--bind={path}:{path}:ro" for path in _programs()]
        return [self.program, "exec", *self._options(), *binds, folder, "/bin/sh", "-c", "true"]


def _apptainer_image(image: str) -> str:
    return image if image.startswith("/") or "://" in image else f"docker://{image}"


def _programs() -> list[str]:
    """Folders of the host that a program needs."""
    found = ("/usr", "/bin", "/lib", "/lib64", "/nix", "/gnu")
    return [path for path in found if Path(path).is_dir() and not Path(path).is_symlink()]


def make_root(folder: Path) -> None:
    """Make a root folder in which the host's programs run once they are mounted there."""
    folder.chmod(0o755)
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "var"):
        (folder / name).mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        link = Path("/") / name
        if link.is_symlink():
            (folder / name).symlink_to(str(link.readlink()).lstrip("/"))
        elif link.is_dir():
            (folder / name).mkdir()


KINDS: Mapping[str, type[ContainerEngine]] = {"podman": Podman, "apptainer": Apptainer}


def find_engine(
    mode: ContainerMode, visible: Iterable[str] = ()
) -> tuple[ContainerEngine | None, str]:
    """The engine that makes containers here, and why there is none.

    Raises:
        OptionError: One was named, and it does not work.
    """
    if mode == "off":
        return None, "switched off"
    whys = []
    for kind, engine in KINDS.items():
        program = shutil.which(kind)
        if mode not in ("auto", kind) or program is None:
            continue
        found = engine(program, visible)
        why = found.try_out()
        if not why:
            return found, ""
        whys.append(why)
    why = "; ".join(whys) or MISSING
    if mode != "auto":
        raise OptionError(f"containers {mode}: {why}")
    return None, why


def mounts_for(
    engine: ContainerEngine, account: JobAccount, folders: Sequence[Path], workdir: Path
) -> list[str]:
    """Folders of the host that a job sees: its own, its user's home, and what everybody may see.

    Of others a working folder must be in one of these: a link there could lead anywhere.
    """
    found = [str(folder) for folder in folders]
    if account.uid and account.home not in ("", "/") and _is_theirs(account):
        found.append(account.home)
    found += [path for path in engine.visible if Path(path).is_dir()]
    if account.own and workdir.is_dir() and workdir.resolve() != Path("/"):
        found.append(str(workdir))
    return list(dict.fromkeys(path for path in found if ":" not in path))


def _is_theirs(account: JobAccount) -> bool:
    """Is there such a home, and may this job see it?"""
    home = Path(account.home)
    seen = account.own or account.uid != os.geteuid()
    return seen and home.is_dir() and home.stat().st_uid == account.uid


def remove_container(order: Mapping[str, Any]) -> None:
    """Take what a killed shim left of a container out of the books of its engine."""
    box = order.get("box") or {}
    if box.get("remove"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - our own order
                box["remove"], env=box["env"], stdin=subprocess.DEVNULL, capture_output=True,
                timeout=REMOVE_S, check=False,
            )  # fmt: skip
