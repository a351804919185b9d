"""`rota pull`."""

from pathlib import Path

import click

from rota.cli.client import JOB, LONG_PATIENCE_S, clean, connect, job_id, server_options
from rota.core.errors import InputError, NotFoundError
from rota.core.words import counted
from rota.wire import Folder


@click.command()
@JOB
@click.argument("path", metavar="[PATH]", default="")
@click.option("-o", "--out", metavar="DIR", type=click.Path(path_type=Path),
              help="Output folder; by default job-ID.")  # fmt: skip
@click.option("--checkpoint", is_flag=True, help="Copy its checkpoints, not its working folder.")
@click.option("--limit", metavar="SIZE", default="10GB", show_default=True,
              help="Refuse to copy more than this.")  # fmt: skip
@server_options
def pull(
    job: str,
    path: str,
    *,
    out: Path | None,
    checkpoint: bool,
    limit: str,
    server: str | None,
    token_file: str | None,
) -> int:
    """Copy the files of a JOB to this machine: all of its own folder, or PATH in there.

    While it runs and afterwards, as long as its folder is kept. Files that are here already and did
    not change are not copied again. Plain files only: links and other things are left out, and
    said. A job that ran in a folder of the machine (`workdir`) has its files there.

    \b
    Examples:
      rota pull 17
      rota pull 17 results -o here
      rota pull 17 --checkpoint
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.jobfile.quantities import memory_gib
    from rota.sdk.files import ResultFolder, shown_size

    most = int(memory_gib(limit, "--limit") * 2**30)
    with connect(server, token_file, patience_s=LONG_PATIENCE_S) as rota:
        number = job_id(rota, job)
        folder: Folder = "checkpoint" if checkpoint else "work"
        found, skipped = rota.files(number, path.strip("/"), folder=folder)
        for each in skipped:
            click.echo(f"warning: {clean(each)} is no plain file: it is left out", err=True)
        if not found:
            submitted = rota.job(number).file
            where = submitted.workdir if submitted and not submitted.upload else ""
            hint = f": it ran in {where}, and wrote there" if where and not checkpoint else ""
            raise NotFoundError(f"job {number} has no files of its own{hint}")
        total = sum(info.size for info in found)
        if total > most:
            raise InputError(
                f"job {number}: {shown_size(total)} in {len(found):,} files, and {limit} is the "
                "limit: name a PATH, or give --limit"
            )
        results = ResultFolder(out or Path(f"job-{number}"))
        copied = 0
        for info in found:
            if results.has(info.path, info.size, info.mtime_ns):
                continue
            pieces = rota.read_file(number, info.path, folder=folder)
            results.write(info.path, pieces, info.mtime_ns, executable=info.executable)
            copied += 1
            click.echo(clean(info.path))
        same = len(found) - copied
    told = f", {same:,} unchanged" if same else ""
    click.echo(f"{results.folder}: {counted(copied, 'file')} copied{told}", err=True)
    return 0
