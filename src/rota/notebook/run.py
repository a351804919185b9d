"""Running from a notebook: the options of the command line as arguments."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import InputError, OptionError
from rota.notebook.comparison import Comparison
from rota.notebook.frames import Jobs, jobs_file
from rota.notebook.performance import noticed
from rota.notebook.result import Result
from rota.study.compare_file import COMPARE
from rota.study.config import RunConfig
from rota.study.folder import OutputFolder
from rota.study.output import SUMMARY, write_run
from rota.study.run import simulate as run


def simulate(
    trace: Jobs,
    *,
    cluster: str,
    policy: str,
    output: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> Result:
    """Run the jobs of a trace on a simulated cluster.

    Args:
        trace: A file, or a table of polars or pandas with the columns of the csv format. Beside an
            `output` DIR a table is kept as DIR.jobs.csv, so that the run can be done again.
        cluster: `32x8`, or a file.
        policy: `name` or `name:key=value,...`.
        output: A folder to write, as `rota simulate -o` does; by default nothing is written.
        force: Replace Rota's files in a folder that is not empty.
        options: The other fields of `RunConfig` (`placement`, `costs`, `seed`, `measure`, ...).
    """
    _config("", cluster, policy, options)  # before anything is written
    if output is None:
        with jobs_file(trace, None, options.get("format")) as file:
            made = Result.of(run(_config(file, cluster, policy, options)))
        return noticed(made, _named(trace), cluster)
    with (
        OutputFolder(Path(output), force=force) as folder,
        jobs_file(trace, Path(output), options.get("format")) as file,
    ):
        result = run(_config(file, cluster, policy, options))
        write_run(result, folder.path)
    made = Result(result.summary, result.jobs, result.log, Path(output))
    return noticed(made, _named(trace), cluster)


def _named(trace: Jobs) -> str:
    return str(trace) if isinstance(trace, str | Path) else "a table"


def compare(
    trace: Jobs,
    *,
    cluster: str,
    policies: Sequence[str],
    output: str | Path | None = None,
    repeat: int = 1,
    windows: int = 1,
    jobs: int = 1,
    **options: Any,
) -> Comparison:
    """Run several policies on the same jobs; the first is the baseline.

    Args:
        trace: A file, or a table of polars or pandas with the columns of the csv format. Beside an
            `output` DIR a table is kept as DIR.jobs.csv, so that the run can be done again.
        cluster: `32x8`, or a file.
        policies: At least one.
        output: A new folder, as of `rota compare -o`; by default a temporary one.
        repeat: Seeds per policy.
        windows: Consecutive parts of the trace, each run on its own.
        jobs: Runs at the same time.
        options: The other fields of `RunConfig` (`placement`, `costs`, `seed`, `measure`, ...).
    """
    from rota.study.compare import compare as compare_all

    if not policies:
        raise OptionError("no policy to compare: give at least one")
    _config("", cluster, policies[0], options)  # before anything is written
    target = Path(output) if output is not None else Path(tempfile.mkdtemp(prefix="rota-")) / "run"
    with OutputFolder(target) as folder, jobs_file(trace, target, options.get("format")) as file:
        config = _config(file, cluster, policies[0], options)
        compare_all(config, policies, folder.path, repeat=repeat, windows=windows, workers=jobs)
    return Comparison.load(target)


def _config(trace: str | Path, cluster: str, policy: str, options: dict[str, Any]) -> RunConfig:
    known = {field.name for field in msgspec.structs.fields(RunConfig)}
    wrong = sorted(set(options) - known)
    if wrong:
        raise OptionError(f"option {wrong[0]!r} is unknown: use {', '.join(sorted(known))}")
    return RunConfig(trace=str(trace), cluster=str(cluster), policy=policy, **options)


def load(folder: str | Path) -> Result | Comparison:
    """The run or the comparison in a folder that `rota simulate` or `rota compare` made."""
    place = Path(folder)
    if (place / COMPARE).exists():
        return Comparison.load(place)
    if (place / SUMMARY).exists():
        return Result.load(place)
    raise InputError(
        f"{place}: has neither {COMPARE} nor {SUMMARY}: name a folder that `rota compare` or "
        f"`rota simulate` made"
    )
