"""`rota shadow`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.client import clean
from rota.cli.options import DEBUG, POLICY_HELP, Finite, names_of
from rota.cli.show import table, warn
from rota.core.registry import PLACEMENTS, POLICIES

if TYPE_CHECKING:
    from rota.live.drivers.slurm.shadow import Look, SeenCluster, SlurmShadow, Totals

LOG, SUMMARY = "shadow.jsonl", "summary.json"
SHOWN = {
    "looks": "looks",
    "jobs": "jobs seen",
    "slurm_started": "started by {who}",
    "same": "... Rota would have too",
    "elsewhere": "    ... but on other nodes",
    "only_slurm": "... Rota would not have",
    "brief": "... and ended between two looks",
    "earlier_jobs": "Rota would have started earlier",
    "earlier_s": "    by seconds, in all",
    "rota_would_stop": "Rota would have preempted",
    "slurm_stopped": "preempted or requeued by {who}",
    "idle_gpu_s": "GPU-seconds free that Rota would have used",
}


@click.command()
@click.option(
    "--policy", metavar="P", required=True, help=POLICY_HELP, shell_complete=names_of(POLICIES)
)
@click.option(
    "--placement", metavar="PL", default="consolidate", show_default=True,
    help="Placement of the jobs.", shell_complete=names_of(PLACEMENTS),
)  # fmt: skip
@click.option("--partition", metavar="NAME", default="", help="Only this partition of Slurm.")
@click.option(
    "--slurm-conf", metavar="FILE", default="", help="Path of slurm.conf, if Slurm needs it."
)
@click.option("--kubernetes", is_flag=True, help="Watch a Kubernetes instead of Slurm.")
@click.option(
    "--kubeconfig", metavar="FILE", default="",
    help="Of that Kubernetes; else KUBECONFIG, ~/.kube/config, or the account of a pod.",
)  # fmt: skip
@click.option("--namespace", metavar="NAME", default="", help="Only pods of this namespace.")
@click.option("--once", is_flag=True, help="Look once and show what Rota would do now.")
@click.option("--duration", metavar="SECONDS", type=Finite(min=0), help="Stop after this time.")
@click.option(
    "--interval", metavar="S", type=Finite(min=0.1), default=15.0, show_default=True,
    help="Seconds between looks.",
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
    help=f"Folder for {LOG} (a line per look, written as it goes) and {SUMMARY}.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace Rota's files in a folder that is not empty.")
@DEBUG
def shadow(
    *,
    kubernetes: bool,
    once: bool,
    duration: float | None,
    interval: float,
    output: Path | None,
    force: bool,
    **what: str,
) -> None:
    """Watch Slurm or Kubernetes and show what Rota would have done, and where that differs.

    Only reads (squeue and sinfo; lists of pods and nodes): nothing is changed. Without --once or
    --duration it goes on until it is interrupted.

    \b
    Examples:
      rota shadow --policy tiresias --once
      rota shadow --policy easy --partition gpu --duration 86400 --interval 30 -o shadow
      rota shadow --policy capacity --kubernetes --once
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.core.errors import OutputError
    from rota.live.drivers.slurm.shadow import SlurmShadow
    from rota.study.folder import OutputFolder

    if once and duration is not None:
        raise click.UsageError(
            "--once and --duration exclude each other", click.get_current_context()
        )
    if output is not None:
        OutputFolder(output, force=force, own=(LOG, SUMMARY))  # says so if it must not be used
    cluster, names = _cluster(what, kubernetes=kubernetes)
    watcher = SlurmShadow(cluster, what["policy"], what["placement"], partition=what["partition"])
    who = "Kubernetes" if kubernetes else "Slurm"
    end_s = time.monotonic() + (0.0 if once else duration if duration is not None else float("inf"))
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
        try:
            _watch(watcher, output, end_s, interval, names, who)
        finally:
            if watcher.totals.looks:
                _finish(watcher.totals, output, who)
    except OSError as error:
        raise OutputError(f"cannot write to {output}: {error}") from error


def _cluster(what: Mapping[str, str], *, kubernetes: bool) -> tuple["SeenCluster", dict[str, str]]:
    """What is watched, and names for its jobs where they have no numbers."""
    if not kubernetes:
        from rota.live.drivers.slurm.commands import SlurmQueries

        for name in ("kubeconfig", "namespace"):
            if what[name]:
                raise click.UsageError(f"--{name} is for --kubernetes", click.get_current_context())
        return SlurmQueries(what["slurm_conf"]), {}
    from rota.live.drivers.kubernetes.access import find_access
    from rota.live.drivers.kubernetes.api import KubeApi
    from rota.live.drivers.kubernetes.options import KubernetesOptions
    from rota.live.drivers.kubernetes.shadow import KubeQueries

    for name in ("partition", "slurm_conf"):
        if what[name]:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for Slurm: leave it out with --kubernetes",
                click.get_current_context(),
            )
    api = KubeApi(find_access(what["kubeconfig"]))
    click.get_current_context().call_on_close(api.close)
    found = KubeQueries(api, KubernetesOptions(), what["namespace"])
    return found, found.names


def _watch(
    watcher: "SlurmShadow", output: Path | None, end_s: float, interval: float,
    names: Mapping[str, str], who: str,
) -> None:  # fmt: skip
    """Look again and again. A cluster that does not answer is asked again, except at first."""
    from rota.core.errors import ClusterError
    from rota.live.drivers.slurm.shadow import as_json, named

    try:
        while True:
            begun_s = time.monotonic()
            try:
                look = named(watcher.look(), names)
            except ClusterError as error:
                if not (error.retryable and watcher.totals.looks):
                    raise
                warn(str(error))
            else:
                click.echo(_line(look, who))
                if output is not None:
                    _note(as_json(look), output, first=watcher.totals.looks == 1)
            next_s = begun_s + interval
            if next_s > end_s:
                return
            time.sleep(max(0.0, next_s - time.monotonic()))
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)


def _note(look: bytes, output: Path, *, first: bool) -> None:
    """Add a look. What an earlier watch wrote goes with the first: not before there is one."""
    if first:
        (output / SUMMARY).unlink(missing_ok=True)
    with (output / LOG).open("wb" if first else "ab") as file:
        file.write(look)


def _line(look: "Look", who: str) -> str:
    """One look in one line."""
    clock = time.strftime("%H:%M:%S", time.localtime(look.unix_s))
    busy = f"{look.used_gpus:g}/{look.gpus:g} GPUs"
    parts = [f"{clock} {busy}, {look.running} running, {look.waiting} waiting"]
    groups = {
        "Rota would start": [
            f"{job} on {'+'.join(f'{name}:{count:g}' for name, count in places.items())}"
            for job, places in look.wish.starts.items()
        ],
        "would stop": look.wish.stops,
        "would move": list(look.wish.moves),
        "both started": look.same,
        f"only {who} started": look.only_slurm,
        "only Rota would have started": look.only_rota,
    }
    parts += [f"{what} {', '.join(names)}" for what, names in groups.items() if names]
    return clean("; ".join(parts))


def _finish(totals: "Totals", output: Path | None, who: str) -> None:
    import msgspec

    numbers = msgspec.structs.asdict(totals)
    if output is not None:
        text = msgspec.json.format(msgspec.json.encode(totals), indent=2)
        part = output / f"{SUMMARY}.part"
        part.write_bytes(text + b"\n")
        part.replace(output / SUMMARY)
    table(
        ["", totals.policy],
        [[label.format(who=who), f"{numbers[name]:g}"] for name, label in SHOWN.items()],
        numbers=True,
    )
