"""`rota logs`."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from rota.cli.client import (
    INTERRUPTED,
    JOB,
    LONG_PATIENCE_S,
    array_id,
    connect,
    job_id,
    members,
    server_options,
)
from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.sdk import Client


@click.command()
@JOB
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job has finished.")
@click.option("--stdout", is_flag=True, help="Only the standard output.")
@click.option("--stderr", "--err", is_flag=True, help="Only the standard error.")
@click.option("--rank", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
              help="Only the output from this node.")  # fmt: skip
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@server_options
def logs(
    job: str,
    *,
    follow: bool,
    stdout: bool,
    stderr: bool,
    rank: int,
    tail: int | None,
    server: str | None,
    token_file: str | None,
) -> int:
    """Print what a JOB (its id or name) wrote, in all its runs; of @ID, an array, one by one.

    Standard output and error output come together, in the order in which they were written (of a
    quick burst: line by line, as the two took turns).

    \b
    Examples:
      rota logs 17
      rota logs -f 17
      rota logs 17 --stderr --rank 1 --tail 100
      rota logs 17_3
      rota logs @17 --tail 1
    """  # noqa: D301 - \b keeps click from wrapping the lines
    out = sys.stdout.buffer
    patience_s = LONG_PATIENCE_S if follow else 1.0
    try:
        with connect(server, token_file, patience_s=patience_s) as rota:
            which = "out" if stdout and not stderr else "err" if stderr and not stdout else None
            array = array_id(rota, job)
            for each in members(rota, array) if array else ():
                out.write(f"== {each.array}_{each.task} (job {each.id})\n".encode())
                _print(rota, each.id, which, rank, tail, follow=follow)
            if not array:
                number = job_id(rota, job)
                seen = _print(rota, number, which, rank, tail, follow=follow)
                if not seen and which is not None:
                    _hint(rota, number, rank, other="out" if which == "err" else "err")
    except KeyboardInterrupt:  # the usual end of following
        return INTERRUPTED
    return 0


def _print(
    rota: "Client", job: str, which: str | None, rank: int, tail: int | None, *, follow: bool
) -> bool:
    """The output of one job; was there any?"""
    out = sys.stdout.buffer
    stream = which or "all"
    offset, seen = 0, False
    if tail is not None:
        last = b""
        for piece in rota.logs(job, stream=stream, node_rank=rank):
            offset += len(piece)
            last = last_lines(last + piece, tail)
        out.write(last)
        out.flush()
        seen = offset > 0
    if tail is None or follow:
        for piece in rota.logs(job, stream=stream, node_rank=rank, offset=offset, follow=follow):
            seen = True
            out.write(piece)
            out.flush()
    return seen


def _hint(rota: "Client", job: str, rank: int, *, other: str) -> None:
    """Nothing was printed: perhaps there is something in the other output."""
    found = b""
    with suppress(RotaError):  # it is only a hint
        found = next(iter(rota.logs(job, stream=other, node_rank=rank)), b"")
    if found:
        more = f" --rank {rank}" if rank else ""
        which = "out" if other == "err" else "err"
        how = f"rota logs {job} --std{other}{more}"
        click.echo(f"nothing on std{which}, but on std{other}: see `{how}`", err=True)


def last_lines(data: bytes, count: int) -> bytes:
    """The last lines; one that is not complete yet counts."""
    position = len(data) - data.endswith(b"\n")
    for _ in range(count):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return data
    return data[position + 1 :] if count else b""
