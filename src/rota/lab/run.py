"""Running from a notebook: the options of the command line as arguments."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import OptionError
from rota.experiments.config import RunConfig
from rota.experiments.folder import OutputFolder
from rota.experiments.output import write_run
from rota.experiments.run import simulate as run
from rota.lab.comparison import Comparison
from rota.lab.result import Result


def simulate(
    trace: str | Path,
    *,
    cluster: str,
    policy: str,
    output: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> Result:
    """Run the jobs of a trace on a simulated cluster.

    Args:
        trace: A file.
        cluster: `32x8`, or a file.
        policy: `name` or `name:key=value,...`.
        output: A folder to write, as `rota simulate -o` does; by default nothing is written.
        force: Replace Rota's files in a folder that is not empty.
        options: The other fields of `RunConfig` (`placement`, `costs`, `seed`, `measure`, ...).
    """
    config = _config(trace, cluster, policy, options)
    if output is None:
        return Result.of(run(config))
    with OutputFolder(Path(output), force=force) as folder:
        result = run(config)
        write_run(result, folder.path)
    return Result(result.summary, result.jobs, result.log, Path(output))


def compare(
    trace: str | Path,
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
        trace: A file.
        cluster: `32x8`, or a file.
        policies: At least one.
        output: A new folder, as of `rota compare -o`; by default a temporary one.
        repeat: Seeds per policy.
        windows: Consecutive parts of the trace, each run on its own.
        jobs: Runs at the same time.
        options: The other fields of `RunConfig` (`placement`, `costs`, `seed`, `measure`, ...).
    """
    from rota.experiments.compare import compare as compare_all

    if not policies:
        raise OptionError("no policy to compare: give at least one")
    config = _config(trace, cluster, policies[0], options)
    target = Path(output) if output is not None else Path(tempfile.mkdtemp(prefix="rota-")) / "run"
    with OutputFolder(target) as folder:
        compare_all(config, policies, folder.path, repeat=repeat, windows=windows, workers=jobs)
    return Comparison.load(target)


def _config(trace: str | Path, cluster: str, policy: str, options: dict[str, Any]) -> RunConfig:
    known = {field.name for field in msgspec.structs.fields(RunConfig)}
    wrong = sorted(set(options) - known)
    if wrong:
        raise OptionError(f"option {wrong[0]!r} is unknown: use {', '.join(sorted(known))}")
    return RunConfig(trace=str(trace), cluster=str(cluster), policy=policy, **options)
