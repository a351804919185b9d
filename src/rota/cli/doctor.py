"""`rota doctor`: what this machine can and cannot do for a daemon or an agent."""

import os
import resource
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec

from rota.cli.options import DEBUG, STATE
from rota.core.errors import RotaError, install
from rota.live.agent.shim import own_cgroups

PORT = 7842
LEAST_GIB, LEAST_FILES = 1.0, 4_096


class MachineFact(msgspec.Struct, frozen=True):
    """What was looked at: it is fine, or there is a remedy. `must`: nothing works without it."""

    what: str
    fine: bool
    told: str
    remedy: str = ""
    must: bool = False


@click.command()
@STATE
@DEBUG
def doctor(state: Path | None) -> None:
    """List what this machine can and cannot do for a daemon or an agent, each with a remedy.

    Exits with 1 if something is missing without which nothing works.

    \b
    Example:
      rota doctor --state /var/lib/rota
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.sdk.place import state_folder

    found = [finding for look in LOOKS for finding in look(state or state_folder())]
    for finding in found:
        mark = "ok  " if finding.fine else "MISS" if finding.must else "no  "
        remedy = "" if finding.fine or not finding.remedy else f": {finding.remedy}"
        click.echo(f"{mark} {finding.what}: {finding.told}{remedy}")
    missing = [finding.what for finding in found if finding.must and not finding.fine]
    if missing:
        raise RotaError(f"needed and not there: {', '.join(missing)}")


def _packages(_: Path) -> Iterator[MachineFact]:
    for extra, module, must in (
        ("server", "sqlalchemy", True),
        ("server", "uvicorn", True),
        ("server", "jwt", True),
        ("postgres", "psycopg", False),
        ("ray", "ray", False),
    ):
        there = find_spec(module) is not None
        told = "installed" if there else "not installed"
        yield MachineFact(f"package {module}", there, told, install(extra), must)


def _folder(state: Path) -> Iterator[MachineFact]:
    if not state.exists():
        above = next(parent for parent in state.absolute().parents if parent.exists())
        writable = os.access(above, os.W_OK)
        told = "will be made" if writable else f"{above} cannot be written"
        yield MachineFact(
            f"state folder {state}", writable, told, "choose another with --state", must=True
        )
        return
    private = not stat.S_IMODE(state.stat().st_mode) & 0o077
    told = "private" if private else "others can look into it"
    yield MachineFact(f"state folder {state}", private, told, f"chmod 700 {state}")


def _store(state: Path) -> Iterator[MachineFact]:
    if (state / "rota.db").is_file() and find_spec("sqlalchemy") is not None:
        from rota.daemon.upkeep import check

        try:
            found = check(state)
        except RotaError as error:
            found = [str(error)]
        yield MachineFact("store", not found, "; ".join(found) or "sound", "see `rota store check`")


def _tls(state: Path) -> Iterator[MachineFact]:
    there = (state / "tls" / "ca.pem").exists()
    told = "an authority of one's own" if there else "none; fine as long as only this machine calls"
    yield MachineFact("certificates", there, told, "`rota tls init`")


def _port(_: Path) -> Iterator[MachineFact]:
    with socket.socket() as probe:
        free = probe.connect_ex(("127.0.0.1", PORT)) != 0
    told = "free" if free else "somebody listens there (perhaps a daemon)"
    yield MachineFact(f"port {PORT}", free, told, "choose another with --listen")


def _isolation(_: Path) -> Iterator[MachineFact]:
    from rota.live.agent.sandbox import obstacle

    why, _colon, remedy = obstacle().partition(": ")
    told = "a job runs as its user, in a sandbox"
    if os.geteuid():
        told = "jobs do not see each other; all have this account (as root each has its user's)"
    if why:
        told = f"none: a job can read all that the user of its agent can read; {why}"
    yield MachineFact("isolation of jobs", not why, told, remedy)
    kinds = [kind for kind, folder in own_cgroups().items() if os.access(folder, os.W_OK)]
    limits = {"memory", "cpu"} <= {*kinds} or "unified" in kinds
    told = "writable: they hold a run together, and limit memory and processors"
    told = told if limits else "not writable: memory is limited for each process, processors not"
    yield MachineFact("cgroups", limits, told, "under systemd set Delegate=yes for the agent")


def _containers(_: Path) -> Iterator[MachineFact]:
    from rota.live.agent.containers import MISSING, find_engine

    found, why = find_engine("auto")
    told = f"none: jobs with an image do not run here; {why}"
    if found is not None:
        told = f"{found.program} ran one"
    yield MachineFact("containers", found is not None, told, MISSING)


def _tools(_: Path) -> Iterator[MachineFact]:
    for tool, remedy in (
        ("nvidia-smi", "install the driver, or give --gpus N"),
        ("sbatch", "install slurm-client, for the backend slurm"),
    ):
        path = shutil.which(tool)
        yield MachineFact(f"tool {tool}", path is not None, path or "not on the path", remedy)


def _health(_: Path) -> Iterator[MachineFact]:
    from rota.live.agent.health import AUTO, make_check

    check = make_check(AUTO)
    if check is not None:
        trouble = check()
        yield MachineFact(
            "health of the GPUs", not trouble, trouble or "well", "repair the machine"
        )


def _room(state: Path) -> Iterator[MachineFact]:
    above = next(each for each in (state, *state.absolute().parents) if each.exists())
    free_gib = shutil.disk_usage(above).free / 2**30
    yield MachineFact(
        f"room at {above}", free_gib >= LEAST_GIB, f"{free_gib:.0f} GiB",
        "make room, or see `retention` in the configuration",
    )  # fmt: skip
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or soft >= LEAST_FILES
    yield MachineFact(
        "open files", enough, f"{soft:,} at a time",
        f"a daemon with many agents and clients needs {LEAST_FILES:,}: LimitNOFILE= in its unit",
    )  # fmt: skip


def _clock(_: Path) -> Iterator[MachineFact]:
    synchronised = Path("/run/systemd/timesync/synchronized").exists() or any(
        shutil.which(name) for name in ("chronyd", "ntpd")
    )
    told = "kept by a time service" if synchronised else "no time service was found"
    yield MachineFact(
        "clock", synchronised, told, "install chrony where there are several machines"
    )


LOOKS: tuple[Callable[[Path], Iterator[MachineFact]], ...] = (
    _packages, _folder, _store, _room, _tls, _port, _isolation, _containers,
    _tools, _health, _clock,
)  # fmt: skip
