"""`rota simulate`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import DEBUG, FORCE, OUTPUT_DIR, POLICY_HELP, Finite, names_of, run_options
from rota.cli.progress import ProgressBar
from rota.cli.show import emit, table, warn_about
from rota.core.errors import OptionError
from rota.core.registry import POLICIES

if TYPE_CHECKING:
    from rota.study.config import RunConfig
    from rota.study.run import RunResult

SNAPSHOT = "snapshot.rota"
ALL_ASKED = 100  # percent of the GPUs
NEEDED = {
    "trace": "argument 'TRACE'", "cluster": "option '--cluster'", "policy": "option '--policy'",
}  # fmt: skip
SHOWN = (
    "completed", "avg_jct_s", "p50_jct_s", "p95_jct_s", "p99_jct_s", "avg_wait_s",
    "makespan_s", "avg_bounded_slowdown", "gpu_utilisation", "preemptions", "migrations",
)  # fmt: skip
IF_ANY = ("resizes", "evictions")


@click.command(
    epilog="Results: jobs.csv, summary.json, events.parquet (the log) and manifest.json; "
    "`rota rerun DIR` proves that they can be made again."
)
@click.argument("trace", required=False)
@click.option("--policy", metavar="P", help=POLICY_HELP, shell_complete=names_of(POLICIES))
@run_options
@click.option("--snapshot-at", metavar="T", type=Finite(min=0),
              help="Write a snapshot at T seconds.")  # fmt: skip
@click.option(
    "--snapshot", metavar="FILE", type=click.Path(path_type=Path),
    help=f"Where the snapshot goes; by default DIR/{SNAPSHOT}.",
)  # fmt: skip
@click.option(
    "--resume", metavar="FILE", type=click.Path(path_type=Path),
    help="Resume from a snapshot, which holds the trace and all options.",
)  # fmt: skip
@click.option("--json", is_flag=True, help="Print the summary as JSON.")
@OUTPUT_DIR
@FORCE
@DEBUG
def simulate(output: Path, *, force: bool, **values: Any) -> None:
    """Run the jobs of TRACE on a simulated cluster and write the results to a folder.

    \b
    Examples:
      rota simulate jobs.csv --cluster 32x8 --policy srtf -o out
      rota simulate jobs.csv --cluster 32x8 --policy tiresias:limits=3250/7200 -o out
      rota simulate jobs.csv --cluster 48x8 --like tiresias --policy las -o out
      rota simulate jobs.csv --cluster 32x8 --policy ./my_policy.py:alpha=2 -o out
      rota simulate jobs.csv --cluster 32x8 --policy fifo --costs pollux30 --round 60 -o out
    """  # noqa: D301 - \b keeps click from wrapping the lines
    from rota.study.folder import RUN_FILES, OutputFolder
    from rota.study.follow import LiveLog
    from rota.study.output import write_run
    from rota.study.resume import Freeze
    from rota.study.run import simulate as run

    at_s, snapshot = values.pop("snapshot_at"), values.pop("snapshot")
    resume, as_json = values.pop("resume"), values.pop("json")
    config = _config(resume, values)
    if snapshot is not None and at_s is None:
        raise OptionError("--snapshot FILE says where: say when with --snapshot-at T")
    own = (*RUN_FILES, SNAPSHOT)
    with LiveLog(output, config) as live, OutputFolder(output, force=force, own=own) as folder:
        freeze = None
        if at_s is not None:
            freeze = Freeze(at_s, snapshot or folder.path / SNAPSHOT)
        with ProgressBar(config.policy) as bar:
            result = run(config, bar, freeze=freeze, resume=resume, live=live)
        summary = write_run(result, folder.path, ["rota", *sys.argv[1:]])
    warn_about(result.warnings)
    if as_json:
        emit(summary, "json")
    else:
        table(["", config.policy], _rows(summary) + _arrived(result))


def _config(resume: Path | None, values: dict[str, Any]) -> "RunConfig":
    """What the options say; what they leave out is taken from the snapshot, if there is one."""
    from rota.study.config import RunConfig
    from rota.study.resume import frozen_config

    ctx = click.get_current_context()
    if resume is not None:
        saved = frozen_config(resume).as_dict()
        unsaid = click.core.ParameterSource.DEFAULT
        values = {
            key: saved.get(key, value) if ctx.get_parameter_source(key) is unsaid else value
            for key, value in values.items()
        }
    for key, label in NEEDED.items():
        if values[key] is None:
            raise click.UsageError(f"Missing {label}.", ctx)
    return RunConfig(**values)


def _rows(summary: dict[str, Any]) -> list[list[str]]:
    from rota.core.words import duration
    from rota.metrics.vocabulary import BY_KEY, count, label_of, written

    rows = [["jobs", count(summary["jobs"])]]
    for key in SHOWN:
        value, unit = summary[key], BY_KEY[key].unit
        text = written(value, unit)
        if unit == "s" and value is not None and not text.endswith(" s"):
            text += f" ({value:,.1f} s)"  # the exact number, for comparisons with others
        rows.append([label_of(key), text])
    rows += [
        ["CPU time of the engine", duration(summary["engine_cpu_s"])],
        ["jobs per CPU-second", count(round(summary["jobs_per_cpu_s"] or 0))],
    ]
    odd = {name: count for name, count in summary["states"].items() if count and name != "done"}
    after = 2  # behind those completed
    rows[after:after] = [[name, f"{count:,}"] for name, count in odd.items()]
    some = [[label_of(key), count(summary[key])] for key in IF_ANY if summary[key]]
    if summary["with_deadline"]:
        missed = f"{summary['deadline_misses']:,} of {summary['with_deadline']:,}"
        some.append([label_of("deadline_misses"), missed])
    after = [label for label, _ in rows].index("migrations") + 1
    rows[after:after] = some
    return rows


def _arrived(result: "RunResult") -> list[list[str]]:
    """Of a study of placements: where it stood when all GPUs were asked for, or at its end."""
    if result.allocation is None or not result.allocation.height:
        return []
    points = [row for row in result.allocation.rows() if row[0] <= ALL_ASKED]
    percent, used, useless, _ = (points or result.allocation.rows())[-1]
    return [
        [f"GPUs in use at {percent} % arrived", f"{used:.2f} %"],
        [f"fragments at {percent} % arrived", f"{useless:.2f} %"],
    ]
