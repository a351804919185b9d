"""`rota trace fit`, `change`, `annotate` and `merge`: workloads made from traces."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli.options import DEBUG, FILES, Finite, names_of, one_of
from rota.cli.show import warn, warn_about
from rota.core.errors import OptionError
from rota.core.registry import FORMATS
from rota.core.words import counted

if TYPE_CHECKING:
    from rota.traces.imported import Imported


def _rules() -> Iterable[str]:
    from rota.traces.tools.annotate import RULES

    return RULES


_TRACE = click.argument("source", metavar="TRACE", shell_complete=FILES)
_FORMAT = click.option("--format", metavar="F", shell_complete=names_of(FORMATS),
                       help="Trace format; detected by default.")  # fmt: skip
_LIMIT = click.option("--limit", metavar="N", type=click.IntRange(min=1),
                      help="Only the first N jobs.")  # fmt: skip
_OUT = click.option("-o", "--output", required=True, metavar="OUT", type=click.Path(path_type=Path),
                    help="Folder (a name without an ending), .csv, .swf or .sacct.")  # fmt: skip
_SEED = click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0,
                     show_default=True, help="Random seed.")  # fmt: skip
_FORCE = click.option("--force", is_flag=True, help="Overwrite existing output.")


@click.command()
@_TRACE
@_FORMAT
@_LIMIT
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
              help="Output JSON file; stdout by default.")  # fmt: skip
@click.option("--anonymous", is_flag=True, help="Tenants and users become vc0, user0, ...")
@_FORCE
@DEBUG
def fit(
    source: str,
    limit: int | None,
    output: Path | None,
    *,
    anonymous: bool,
    force: bool,
    **values: str | None,
) -> None:
    """Fit a small model of TRACE, from which similar workloads can be drawn.

    It has rates by hour and weekday, how bursty arrivals are, sizes, durations by size, tenants and
    users; never a job. `rota trace generate fit:FILE` draws from it.

    \b
    Examples:
      rota trace fit philly.csv -o philly.json
      rota trace generate fit:philly.json --jobs 2000 --cluster 16x8 --load 1.1 -o jobs.csv
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.read import read_trace
    from rota.traces.synth.fit import as_text, save_fit
    from rota.traces.synth.fit import fit as make

    imported = read_trace(source, values["format"], limit=limit)
    model = make(imported, source=Path(source).name, anonymous=anonymous)
    for why, count in model.left_out.items():
        warn(f"{counted(count, 'job')} left out: {why}")
    if output is None:
        click.echo(as_text(model), nl=False)
        return
    save_fit(model, output, force=force)
    classes = len(model.classes)
    click.echo(
        f"{output}: {counted(model.jobs, 'job')} over {model.span_s / 86_400:.3g} days, "
        f"{classes} class{'es' if classes > 1 else ''} of sizes, {len(model.owners):,} owners",
        err=True,
    )


@click.command()
@_TRACE
@_FORMAT
@_LIMIT
@click.option("--window", metavar="FROM:TO",
              help="Only jobs submitted then: seconds, or 30m, 12h, 2d, 1w.")  # fmt: skip
@click.option("--sample-users", metavar="SHARE", type=Finite(),
              help="All jobs of this share of the users.")  # fmt: skip
@click.option("--scale-load", metavar="F", type=Finite(),
              help="Submit F times as densely: times are divided by it.")  # fmt: skip
@_SEED
@_OUT
@_FORCE
@DEBUG
def change(
    source: str,
    limit: int | None,
    window: str | None,
    sample_users: float | None,
    scale_load: float | None,
    seed: int,
    output: Path,
    *,
    force: bool,
    **values: str | None,
) -> None:
    """Cut a window, sample users or scale the load of TRACE.

    Changes are made in this order: window, users, load. OUT says what was done: a folder in its
    trace.json, a file in OUT.json beside it.

    \b
    Examples:
      rota trace change philly.csv --window 7d:14d -o week
      rota trace change jobs.csv --sample-users 0.5 --scale-load 2 --seed 1 -o half.csv
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.tools import change as changes
    from rota.traces.tools.convert import read_known

    if window is None and sample_users is None and scale_load is None:
        raise OptionError("nothing to change: give --window, --sample-users or --scale-load")
    span = None if window is None else changes.parse_window(window)
    imported = read_known(source, values["format"], limit)
    if span is not None:
        imported = changes.window(imported, *span)
    if sample_users is not None:
        imported = changes.sample_users(imported, sample_users, seed)
    if scale_load is not None:
        imported = changes.scale_load(imported, scale_load)
    _write(imported, output, source, force=force)


@click.command()
@_TRACE
@_FORMAT
@_LIMIT
@click.option("--rule", metavar="NAME[:key=value,...]", multiple=True, required=True,
              shell_complete=one_of(_rules), help="What to assign; may be repeated.")  # fmt: skip
@_SEED
@_OUT
@_FORCE
@DEBUG
def annotate(
    source: str,
    limit: int | None,
    rule: tuple[str, ...],
    seed: int,
    output: Path,
    *,
    force: bool,
    **values: str | None,
) -> None:
    """Assign to the jobs of TRACE what it does not say, by named rules.

    What a job gets depends on the seed, the rule and its id only, so that a part of a trace gets
    the same as the whole. OUT keeps the rules: a folder in its trace.json, a file in OUT.json
    beside it. Speeds need a folder.

    \b
    Rules:
      models:resnet50=3,bert=1          a model, by weight
      speeds:v100=1,p100=0.6,spread=0.2 by GPU type (by=model: the same for a model)
      deadlines:factor=1.5-3,share=0.5  submission + duration * factor, for half of the jobs
      estimates:factor=1-5              duration * factor
      priorities:high=0.2,value=1       for this share of the jobs; 0 for the others

    \b
    Examples:
      rota trace annotate jobs.csv --rule deadlines:factor=1.5-3 --seed 1 -o urgent.csv
      rota trace annotate philly.csv --rule speeds:v100=1,k80=0.3,spread=0.2 -o mixed
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.tools import annotate as annotations
    from rota.traces.tools.convert import read_known

    for text in rule:
        annotations.split_rule(text)  # a typing error is found before a long import
    imported = annotations.annotate(read_known(source, values["format"], limit), rule, seed)
    _write(imported, output, source, force=force)


@click.command()
@click.argument("sources", metavar="TRACE TRACE...", nargs=-1, required=True, shell_complete=FILES)
@click.option("--format", metavar="F", multiple=True, shell_complete=names_of(FORMATS),
              help="Trace format: once for all, or once for each in their order ('' to detect it); "
              "detected by default.")  # fmt: skip
@click.option("--offset", metavar="TIME", multiple=True,
              help="When a trace begins, once for each in their order: seconds, or 30m, 12h, 2d, "
              "1w. [default: all at once]")  # fmt: skip
@click.option("--align", type=click.Choice(["start", "clock"]), default="start", show_default=True,
              help="The first seconds are the same moment, or what the traces' own dates "
              "say.")  # fmt: skip
@_OUT
@_FORCE
@DEBUG
def merge(
    sources: tuple[str, ...],
    format: tuple[str, ...],  # noqa: A002 - the name of the option
    offset: tuple[str, ...],
    align: str,
    output: Path,
    *,
    force: bool,
) -> None:
    """Merge several traces into one workload.

    Jobs keep their tenants and all else; they come in the order of their submission. If traces
    have the same job ids, those of the later one get its name in front; with `--align clock` a job
    that two of them have (the same id, submitted at the same time) is there once. OUT says what was
    done: a folder in its trace.json, a file in OUT.json beside it. `rota replay --also` shows what
    a new group would do to the jobs of a log.

    \b
    Examples:
      rota trace merge philly.csv new-group.csv -o both
      rota trace merge week1.txt week2.txt --align clock -o weeks
      rota trace merge jobs.csv burst.csv --offset 0 --offset 2d -o later.csv
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.tools.change import parse_offset
    from rota.traces.tools.convert import read_known
    from rota.traces.tools.merge import NamedTrace
    from rota.traces.tools.merge import merge as put_together

    if len(sources) < 2:  # noqa: PLR2004 - with one there is nothing to merge
        raise OptionError("nothing to merge: name at least two traces")
    formats, offsets = format, offset
    for option, given in (("--format", formats), ("--offset", offsets)):
        if len(given) not in (0, len(sources)) and (option, len(given)) != ("--format", 1):
            raise OptionError(
                f"{option} is given {len(given)} times for {len(sources)} traces: give it once for "
                f"each, in their order"
            )
    same = [formats[0] if formats else ""] * len(sources)
    kinds = formats if len(formats) == len(sources) else same
    starts_s = [parse_offset(text) for text in offsets] or [0.0] * len(sources)
    parts = [
        NamedTrace(Path(source).stem, read_known(source, kind or None, None), start_s)
        for source, kind, start_s in zip(sources, kinds, starts_s, strict=True)
    ]
    imported = put_together(parts, by_clock=align == "clock").imported
    for note in imported.notes:
        if note.startswith("ids of "):
            warn(note)
    _write(imported, output, " ".join(sources), force=force)


@click.command()
@_TRACE
@_FORMAT
@_LIMIT
@click.option("--models", is_flag=True, help="Replace names of models, too.")
@click.option("--names", metavar="FILE", type=click.Path(path_type=Path),
              help="Write which name stands for which to this JSON file; keep it.")  # fmt: skip
@_OUT
@_FORCE
@DEBUG
def redact(
    source: str,
    limit: int | None,
    names: Path | None,
    output: Path,
    *,
    models: bool,
    force: bool,
    **values: str | None,
) -> None:
    """Replace the names in TRACE, so that it can be given to others.

    Users, jobs, queues, groups, accounts, partitions, labels and nodes become user-1, queue-2 and
    so on, the same name always the same; jobs become numbers. Times, sizes, GPU types, roles and
    (without --models) models stay as they are, and so does what a simulation says, unless a policy
    breaks ties by names. Remarks and texts of events are left out.

    \b
    Examples:
      rota trace redact pods.json --format kubernetes -o given
      rota trace redact jobs.csv --models --names secret.json -o given.csv
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.traces.read import read_trace
    from rota.traces.sources import replacing
    from rota.traces.tools import redact as tool

    if names is not None and names.exists() and not force:
        raise OptionError(f"--names {names}: is there already: give another name or --force")
    redacted, table = tool.redact(read_trace(source, values["format"], limit=limit), models=models)
    if names is None:
        _write(redacted, output, "redacted", force=force)
        return
    import json

    with replacing(names, private=True) as part:  # both or neither
        part.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n")
        _write(redacted, output, "redacted", force=force)


def _write(imported: "Imported", output: Path, source: str, *, force: bool) -> None:
    from rota.traces.tools.convert import count_written, write_known

    for what in write_known(imported, output, source=source, force=force):
        warn(f"this form has no room for {what}: it is lost")
    warn_about(imported.quality.told)
    click.echo(f"{output}: {counted(count_written(imported, output), 'job')}", err=True)
