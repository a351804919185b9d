"""`rota report`."""

from pathlib import Path
from typing import Any

import click

from rota.cli.options import DEBUG, figure_formats
from rota.cli.progress import ProgressBar
from rota.core.errors import install


@click.command(epilog=f"Figures as files need matplotlib: {install('plot')}.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--figures", metavar="F,...", default="svg,png,pdf", show_default=True, callback=figure_formats,
    help="Files for each figure: svg, png, pdf, or none.",
)  # fmt: skip
@click.option(
    "--measures", metavar="K,...", default="",
    help="Only these measures of a comparison, by their keys in compare.json.",
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
    help="Output page; report.html in DIR by default. Figures go beside it.",
)  # fmt: skip
@click.option("--open", is_flag=True, help="Open the page in a browser.")
@DEBUG
def report(folder: Path, figures: tuple[str, ...], output: Path | None, **values: Any) -> None:
    """Rebuild the report of DIR: a page with all figures, and each figure as a file.

    DIR is a folder that `rota compare`, `simulate`, `sweep`, `tune`, `robust` or `predict` made.
    The page is one file that needs no network; everything is in it.

    \b
    Examples:
      rota report out
      rota report report --figures pdf
      rota report report --figures none -o /tmp/page.html
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.cli.show import warn
    from rota.report.write import NEEDS_PLOT, has_matplotlib, write_report

    with ProgressBar("report") as bar:
        page = write_report(
            folder,
            to=output,
            formats=figures,
            measures=[key.strip() for key in values["measures"].split(",") if key.strip()],
            told=lambda what, done, total: bar.retitle(f"report: {what}")(done, total),
        )
    if figures and not has_matplotlib():
        warn(NEEDS_PLOT)
    click.echo(str(page))
    if values["open"]:
        click.launch(str(page))
