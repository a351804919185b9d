"""`rota logs`."""

import sys

import click

from rota.cli.client import INTERRUPTED, JOB, LONG_PATIENCE_S, connect, job_id, server_options


@click.command()
@JOB
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over.")
@click.option("--err", is_flag=True, help="The error output instead.")
@click.option("--rank", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
              help="Of which of its nodes.")  # fmt: skip
@click.option("--tail", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@server_options
def logs(
    job: str,
    *,
    follow: bool,
    err: bool,
    rank: int,
    tail: int | None,
    server: str | None,
    token_file: str | None,
) -> int:
    """Print what a JOB (its id or name) wrote, in all its runs.

    \b
    Examples:
      rota logs 17
      rota logs -f 17
      rota logs 17 --err --rank 1 --tail 100
    """  # noqa: D301 - \b keeps click from wrapping the lines
    out = sys.stdout.buffer
    patience_s = LONG_PATIENCE_S if follow else 1.0
    try:
        with connect(server, token_file, patience_s=patience_s) as rota:
            number = job_id(rota, job)
            stream = "err" if err else "out"
            offset = 0
            if tail is not None:
                last = b""
                for piece in rota.logs(number, stream=stream, node_rank=rank):
                    offset += len(piece)
                    last = last_lines(last + piece, tail)
                out.write(last)
                out.flush()
            if tail is None or follow:
                for piece in rota.logs(
                    number, stream=stream, node_rank=rank, offset=offset, follow=follow
                ):
                    out.write(piece)
                    out.flush()
    except KeyboardInterrupt:  # the usual end of following
        return INTERRUPTED
    return 0


def last_lines(data: bytes, count: int) -> bytes:
    """The last lines; one that is not complete yet counts."""
    position = len(data) - data.endswith(b"\n")
    for _ in range(count):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return data
    return data[position + 1 :] if count else b""
