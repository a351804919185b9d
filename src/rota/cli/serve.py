"""`rota serve`: the daemon."""

from pathlib import Path

import click

from rota.cli.options import DEBUG, ISOLATION, STATE, VISIBLE, names_of
from rota.cli.signals import run_until_told
from rota.core import registry


@click.command()
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file (rota.yaml) with every setting below and more; SIGHUP reloads it.",
)
@click.option(
    "--nodes",
    metavar="SPEC",
    help="Nodes on this machine: 4x4 (nodes x GPUs), 2x8:a100, or a cluster YAML.",
)
@click.option(
    "--gpus",
    metavar="N",
    type=click.IntRange(min=1),
    help="One node with N GPUs: short for --nodes 1xN.",
)
@click.option(
    "--policy",
    metavar="P",
    shell_complete=names_of(registry.POLICIES),
    help="Policy, as for `rota simulate`; default fifo-skip.",
)
@click.option(
    "--placement",
    metavar="PL",
    shell_complete=names_of(registry.PLACEMENTS),
    help="Placement, as for `rota simulate`; default consolidate.",
)
@click.option(
    "--admission",
    metavar="A",
    shell_complete=names_of(registry.ADMISSIONS),
    help="Admission, as for `rota simulate`; default accept-all.",
)
@click.option(
    "--backend",
    type=click.Choice(["local", "slurm", "kubernetes", "ray", "pretend"]),
    help="What runs the jobs; default local (agents). pretend runs nothing, for trials.",
)
@click.option(
    "--ray-address",
    metavar="A",
    help="Ray cluster for --backend ray: HOST:PORT of its head, or auto (default): this machine's.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on; default 127.0.0.1:7842, port 0 picks a free one.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Keep everything in a PostgreSQL database (postgresql://USER@HOST:PORT/DATABASE) instead "
    "of a file in the state folder; of several daemons on it one leads.",
)
@click.option(
    "--plain-text/--no-plain-text",
    default=None,
    help="Listen without a certificate on an address that others can reach.",
)
@click.option(
    "--owner",
    metavar="NAME",
    envvar="ROTA_OWNER",
    help="Name of whoever runs the daemon, as their jobs show it; by default their account's.",
)
@STATE
@ISOLATION
@VISIBLE
@click.option(
    "--check/--no-check", default=None, help="Verify every invariant at every event (slower)."
)
@click.option("--log-json/--no-log-json", default=None, help="Log as JSON lines.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Log level; default info.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start although the store lost jobs that it had accepted (an older copy was put back).",
)
@DEBUG
def serve(config: Path | None, gpus: int | None, state: Path | None, **said: object) -> None:
    """Run the scheduler on real machines, until SIGTERM.

    Jobs outlive the daemon: stop it, upgrade, start it again; nothing is lost and nothing is
    started twice. SIGHUP (or `rota reload`) reads the configuration again.

    \b
    Examples:
      rota serve --nodes 4x4 --policy tiresias   # 4 nodes with 4 GPUs each, on this machine
      rota serve                                 # the GPUs of this machine, and agents that join
      rota serve --config rota.yaml --listen 0.0.0.0:7842
      rota serve --backend slurm --policy srtf   # Rota decides, Slurm executes
      rota serve --backend kubernetes            # Rota decides, pods are bound where it says
      rota serve --backend ray                   # Rota decides, actors of Ray run the jobs

    \b
    Then, in another terminal:
      rota submit --gpus 2 -- python train.py
      rota ls
    """  # noqa: D301 - \b keeps click from wrapping the lines
    said["cluster"] = said.pop("nodes")
    accept_loss = bool(said.pop("accept_loss"))
    said["isolation"] = _isolation(said.pop("isolation"), said.pop("visible"))
    address = said.pop("ray_address")
    said["ray"] = {} if address is None else {"address": address}
    if gpus is not None:
        if said["cluster"] is not None:
            raise click.UsageError("--gpus and --nodes say the same: give one of them")
        said["cluster"] = f"1x{gpus}"
    from rota.daemon.folder import StateFolder
    from rota.daemon.settings import read_settings
    from rota.sdk.place import state_folder

    settings = read_settings(config, said)
    if address is not None and settings.backend != "ray":
        raise click.UsageError(f"--ray-address is for --backend ray, not {settings.backend}")
    path = state or state_folder()
    # Before all that takes long: from now on clients see that a daemon is starting, and wait.
    folder = None if settings.store else StateFolder(path)
    try:
        from rota.api.logs import configure, open_log
        from rota.server import Assembly
    except ImportError:
        if folder is not None:
            folder.close()
        raise
    file = None
    if settings.log_file:
        kept = settings.retention
        file = open_log(Path(settings.log_file), int(kept.log_mib * 2**20), kept.log_files)
    configure(settings.log_level, json=settings.log_json, file=file)
    if folder is None:
        from rota.cli.leadership import Candidate

        Candidate(path, settings, config=config, said=said, accept_loss=accept_loss).run()
        return
    assembly = Assembly(folder, settings, config=config, said=said, accept_loss=accept_loss)
    try:
        run_until_told(assembly)
    finally:
        assembly.close()


def _isolation(mode: object, visible: object) -> dict[str, object]:
    """What the command line says of a section of the configuration."""
    found = {"mode": mode} if mode is not None else {}
    if isinstance(visible, tuple) and visible:
        found["visible"] = [str(path.absolute()) for path in visible]
    return found
