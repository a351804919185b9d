"""`rota watch`: a run as an animation."""

from pathlib import Path

import click

from rota.cli.options import DEBUG, Finite
from rota.core.errors import OptionError

PAGES = (".html", ".htm")
_FOLDER = click.Path(path_type=Path)


@click.command(
    epilog="Where a tool is missing, the error says how to get it; pages and SVG need none."
)
@click.argument("runs", metavar="RUN [RUN]", nargs=-1, required=True, type=_FOLDER)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
    help="Write a file instead: a page (.html), or a film for slides (.svg, .gif, .mp4).",
)  # fmt: skip
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65_535), default=0, show_default="a free one",
    help="Port on this machine.",
)  # fmt: skip
@click.option("--show", is_flag=True, help="Open it in a browser of this machine.")
@click.option("--wait", is_flag=True, help="RUN is not there yet: show it when it is.")
@click.option(
    "--seconds", metavar="S", type=Finite(1, 600), default=20.0, show_default=True,
    help="Length of a film.",
)  # fmt: skip
@click.option(
    "--fps", metavar="N", type=click.IntRange(1, 60), default=12, show_default=True,
    help="Frames per second of a film.",
)  # fmt: skip
@DEBUG
def watch(
    runs: tuple[Path, ...],
    output: Path | None,
    *,
    port: int,
    show: bool,
    wait: bool,
    seconds: float,
    fps: int,
) -> None:
    """Watch a run: the cluster, the queue as a moving line, and each decision with its reason.

    RUN is a folder that `rota simulate` made, a run's folder of a comparison, or an export of a
    daemon. Two runs play side by side on one clock: the same workload under two policies.

    Without -o the page is served on this machine until Ctrl-C; with -o it is a file that needs no
    network. Space plays and pauses, a point steps to the next decision. A run that `rota simulate`
    still works on is shown as far as it is, and the page goes on with it.

    \b
    Examples:
      rota watch out --show
      rota watch report/fifo report/srtf -o watch.html
      rota watch out -o watch.gif --seconds 15
      rota watch out --wait --show
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.report.watch import MOST_RUNS, write_watch_page

    if len(runs) > MOST_RUNS:
        raise click.UsageError(f"{len(runs)} runs: name one or two.")
    film = output is not None and output.suffix.lower() not in PAGES
    _refuse_idle(*(() if film else ("seconds", "fps")), *(() if output is None else ("port",)))
    if output is None:
        _serve(runs, port, show=show, wait=wait)
        return
    if wait:
        raise click.UsageError("--wait goes with a page that is served, not with -o.")
    if output.suffix.lower() in PAGES:
        write_watch_page(runs, output)
    else:
        from rota.report.movie import KINDS, write_movie

        if output.suffix.lower() not in KINDS:
            raise OptionError(
                f"output {str(output)!r}: name a file that ends in "
                f"{', '.join((*PAGES[:1], *KINDS))}"
            )
        write_movie(runs, output, seconds=seconds, fps=fps)
    click.echo(str(output))
    if show:
        click.launch(str(output))


def _refuse_idle(*names: str) -> None:
    """Say so if an option was given that would change nothing."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            remedy = "a page that is served" if name == "port" else "a film: -o FILE.gif"
            raise click.UsageError(f"--{name} goes with {remedy}.")


def _serve(runs: tuple[Path, ...], port: int, *, show: bool, wait: bool) -> None:
    from rota.report.watch_server import WatchServer

    with WatchServer(runs, port, wait=wait) as server:
        click.echo(server.url)
        click.echo("Ctrl-C ends it", err=True)
        if show:
            click.launch(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("", err=True)
