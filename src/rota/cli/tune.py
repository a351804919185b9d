"""`rota tune`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import DEBUG, FILES
from rota.cli.show import emit, say, table, warn_about
from rota.cli.sweep import FAILED, INTERRUPTED, RunsBar, executor_options, make_executor
from rota.core.errors import OptionError

if TYPE_CHECKING:
    from rota.study.tune.run import TuneRecord
    from rota.study.tune.spec import TuneSpec

SHOWN = 10  # trials that the table has


@click.command(
    epilog="Results: trials.csv (a row per trial, with the goal at each rung), tune.json, "
    "report.html, and a folder per run in DIR/runs. The same command again does only what is "
    "missing."
)
@click.argument("spec", metavar="SPEC", type=click.Path(path_type=Path), shell_complete=FILES)
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
    help="Output folder; created if missing, or that of a tuning to continue.  [default: the name "
    "of SPEC with -tuned]",
)  # fmt: skip
@executor_options
@click.option(
    "--dry-run", is_flag=True, help="Check everything and list the trials without running them."
)
@click.option("--show", is_flag=True, help="SPEC is the folder of a tuning: print what it found.")
@click.option("--json", is_flag=True, help="Print everything as JSON instead of tables.")
@DEBUG
def tune(spec: Path, output: Path | None, **values: Any) -> int:
    """Search the parameters that are best for a goal, and stop bad trials early.

    SPEC is the YAML file of a sweep with a section `tune`. All trials run on a small part of the
    workload, the best third of them on three times as many jobs, and so on up to the whole. At the
    end the winner is held against the default in repeats (other jobs where they are drawn, parts of
    the same file otherwise), and only what is more than noise is called better.
    Several policies and values of `parameters` are varied without such a section, too.

    \b
      workloads: [jobs.csv]
      clusters: [16x8]
      policies: [tiresias]
      tune:
        goal: avg_jct_s
        space:
          limits: {from: 600, to: 200000, scale: log}
          promote: [0, 2, 8]
        trials: 27

    \b
    Examples:
      rota tune sweep.yaml --dry-run
      rota tune sweep.yaml -o tuned
      rota tune sweep.yaml --jobs 8 -o tuned
      rota tune tuned --show
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.study.sweep.source import read_source
    from rota.study.tune.run import load_tune
    from rota.study.tune.spec import parse_tune

    if values["show"]:
        return _report(load_tune(spec), as_json=values["json"])
    if spec.is_dir():
        raise OptionError(f"{spec}: is a folder: name a YAML file, or add --show to look at it")
    parsed = parse_tune(read_source(spec))
    if values["dry_run"]:
        return _rehearse(parsed)
    return _run(parsed, output or Path(f"{spec.stem}-tuned"), values)


def _run(tuning: "TuneSpec", output: Path, values: dict[str, Any]) -> int:
    from rota.report.study_pages import write_study_page
    from rota.report.tune import tune_page
    from rota.study.tune.run import RECORD, load_tune
    from rota.study.tune.run import tune as search

    def rung(number: int, trials: int, jobs: int) -> None:
        click.echo(f"rung {number}: {trials:,} trials, {jobs:,} jobs each", err=True)

    try:
        with RunsBar(tuning.spec.name) as bar:
            record = search(
                tuning, output, make_executor(values), fresh=values["fresh"],
                command=["rota", *sys.argv[1:]], told=bar, rung_told=rung,
            )  # fmt: skip
    except KeyboardInterrupt:
        if not (output / RECORD).exists():
            raise
        done = len(load_tune(output).rungs)
        click.echo(
            f"interrupted: {done:,} rungs are done; the same command goes on from there", err=True
        )
        return INTERRUPTED
    write_study_page(tune_page(record), output)
    code = _report(record, as_json=values["json"])
    click.echo(f"trials: {output / 'trials.csv'}", err=True)
    click.echo(f"report: {output / 'report.html'}", err=True)
    return code


def _rehearse(tuning: "TuneSpec") -> int:
    from tempfile import TemporaryDirectory

    from rota.study.tune.run import rehearse

    with TemporaryDirectory(prefix="rota-tune-") as scratch:
        parts, jobs = rehearse(tuning, Path(scratch))
    table(["trial", "values"], [[str(one.number), one.label] for one in tuning.trials])
    said = ", ".join(f"{jobs // part:,}" for part in parts)
    click.echo(
        f"{len(tuning.trials):,} trials, of which 0 is the default; jobs of a run at each rung: "
        f"{said}",
        err=True,
    )
    return 0


def _report(record: "TuneRecord", *, as_json: bool) -> int:
    """The rungs, the best trials and the verdict; 1 if a run failed or it is not finished."""
    warn_about(record.warnings)
    for failed in record.failures:
        click.echo(f"failed: {failed.describe()}", err=True)
    if as_json:
        import msgspec

        emit(msgspec.to_builtins(record), "json")
    else:
        _show(record)
    return FAILED if record.failures or record.judgement is None else 0


def _show(record: "TuneRecord") -> None:
    from rota.metrics.vocabulary import written

    unit, label = record.measure.unit, record.measure.label
    rows = [
        (
            f"{number}",
            f"{rung.jobs:,}",
            f"{len(rung.values):,}",
            f"{len(rung.kept):,}",
            written(rung.best, unit),
            record.trials[rung.kept[0]].label if rung.kept else "-",
        )
        for number, rung in enumerate(record.rungs)
    ]
    table(["rung", "jobs", "trials", "go on", f"best {label}", "best trial"], rows, numbers=True)
    found, winner = record.judgement, record.winner
    if found is not None and winner is not None:
        both = [("default", record.trials[0].label, written(found.default_value, unit))]
        if found.winner:
            both.append(("winner", winner.label, written(found.winner_value, unit)))
        table(["on the whole workload", "trial", label], both, numbers=True)
    say(f"{record.verdict} {record.cost}" if record.judgement else record.verdict)
    if record.use:
        click.echo(f"to use it: {record.use}", err=True)
