"""`rota profile`."""

from pathlib import Path

import click

from rota.cli.options import DEBUG, Finite
from rota.core.errors import InputError


@click.command()
@click.option("--sizes", default="1,2", show_default=True, metavar="N,N,...", help="GPUs to try.")
@click.option(
    "--seconds", default=60.0, show_default=True, type=Finite(), help="Time for each size at most."
)
@click.option("--name", default="job", show_default=True, help="Name of the application.")
@click.option(
    "-o", "--output", default="profiles", show_default=True, type=click.Path(path_type=Path),
    metavar="DIR", help="Folder of profiles; the application gets a folder there.",
)  # fmt: skip
@click.option(
    "--pairs", type=click.Path(path_type=Path), metavar="FILE",
    help="Measure pairs instead: a file with a line NAME: COMMAND for each application.",
)  # fmt: skip
@click.option(
    "--gpu-type", default="", metavar="TYPE", help="With --pairs: what the GPUs here are called."
)
@click.option("--force", is_flag=True, help="Replace an older profile.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@DEBUG
def profile(
    sizes: str,
    seconds: float,
    name: str,
    output: Path,
    pairs: Path | None,
    gpu_type: str,
    *,
    force: bool,
    command: tuple[str, ...],
) -> None:
    """Measure how a real job scales: run COMMAND here with a few numbers of GPUs.

    `{n}` in the command stands for the number. It tells how fast it is with `rota.job.report`
    (`step_s`, `sync_s` and `batch`, or `throughput`), and is ended after --seconds. The profile is
    what `--format pollux:profiles=DIR` reads.

    With --pairs, every application of a file runs alone and beside each other on the same GPUs (as
    many as the first of --sizes). The result, DIR/pairs.json, is what `--rates pairs:table=FILE`
    reads; jobs name their application in the column `model`.

    \b
    Examples:
      rota profile --sizes 1,2,4 -- python train.py --gpus {n}
      rota profile --pairs applications.txt --sizes 1 --gpu-type v100
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.study.measure import (
        measure,
        measure_pairs,
        read_commands,
        write_pairs,
        write_profile,
    )

    if bool(command) == (pairs is not None):
        raise InputError("give a command after --, or a file with --pairs, and not both")
    try:
        numbers = [int(part) for part in sizes.split(",")]
    except ValueError as error:
        raise InputError(f"--sizes {sizes}: give numbers such as 1,2,4") from error
    if pairs is not None:
        both = measure_pairs(
            read_commands(pairs), gpus=numbers[0], seconds=seconds, told=click.echo
        )
        file = output / "pairs.json"
        made = write_pairs(both, file, gpus=numbers[0], gpu_type=gpu_type, force=force)
        click.echo(f"written: {made}")
        return
    found = measure(
        command,
        numbers,
        seconds=seconds,
        told=lambda size: click.echo(
            f"{size.gpus} GPUs, batch {size.batch:g}: {size.time.step_s:.4g} s a step "
            f"({size.gpus * size.batch / size.time.step_s:.4g} samples/s)"
        ),
    )
    click.echo(f"written: {write_profile(found, output / name, force=force)}")
