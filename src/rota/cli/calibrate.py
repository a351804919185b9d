"""`rota calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rota.cli.options import DEBUG, FORCE, POLICY_HELP, names_of
from rota.cli.show import emit, table, warn_about
from rota.core.errors import OptionError
from rota.core.registry import POLICIES

if TYPE_CHECKING:
    from rota.study.calibration.calibrate import Calibration, Foresight


@click.command(
    epilog="Results: costs.yaml (for --costs), workload.csv (the jobs with their observed "
    "durations), report.md and calibration.json."
)
@click.argument("run", metavar="RUN")
@click.option(
    "--run-policy", metavar="P", shell_complete=names_of(POLICIES),
    help="Policy of RUN, if its manifest does not name it.",
)  # fmt: skip
@click.option("--cluster", metavar="SPEC", help="Cluster of RUN, if its manifest does not name it.")
@click.option(
    "--workload", metavar="FILE",
    help="The jobs as they were submitted, with declared durations; RUN/workload.csv by default.",
)  # fmt: skip
@click.option("--predict", metavar="TRACE", help="Simulate these jobs with the fitted costs.")
@click.option(
    "--policy", metavar="P", shell_complete=names_of(POLICIES),
    help=f"For --predict; that of RUN by default. {POLICY_HELP}",
)  # fmt: skip
@click.option(
    "--against", metavar="RUN",
    help="Predict another live run from its submissions, and report the error.",
)  # fmt: skip
@click.option(
    "--runs", metavar="N", type=click.IntRange(min=1), default=40, show_default=True,
    help="Number of simulations for the intervals.",
)  # fmt: skip
@click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
    help="Random seed of the resampling.",
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path),
    help="Output folder; created if missing. Without it nothing is written.",
)  # fmt: skip
@FORCE
@click.option("--json", is_flag=True, help="Print the fit and the errors as JSON.")
@DEBUG
def calibrate(
    run: str,
    output: Path | None,
    predict: str | None,
    policy: str | None,
    against: str | None,
    **values: Any,
) -> None:
    """Fit start, stop and restart costs to the event log in RUN, and check them.

    The same jobs are simulated with the fitted costs under the same policy, and the error of every
    metric is told. RUN is a folder of `rota export` (or of `rota simulate`), the URL of a daemon,
    or the state folder of one that does not run.

    \b
    Examples:
      rota export -o live
      rota calibrate live -o calibrated
      rota simulate jobs.csv --cluster 4x4 --policy srtf --costs calibrated/costs.yaml -o out
      rota calibrate live --predict jobs.csv --policy srtf
      rota calibrate live --against other-live
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    from rota.cli.export import run_folder
    from rota.study.calibration.calibrate import FILES, check, foresee, write
    from rota.study.calibration.calibrate import calibrate as fit
    from rota.study.folder import OutputFolder

    if predict is not None and against is not None:
        raise OptionError("--predict and --against are two predictions: ask for one of them")
    if policy is not None and predict is None:
        raise OptionError("--policy is for --predict TRACE; that of RUN is --run-policy")
    wanted = {
        "policy": values["run_policy"],
        "cluster": values["cluster"],
        "trace": values["workload"],
        "seed": values["seed"],
        "runs": values["runs"],
    }

    def work() -> "tuple[Calibration, Foresight | None]":
        with run_folder(run) as folder:
            found = msgspec.structs.replace(fit(folder, **wanted), source=run)
            if predict:
                return found, foresee(found, predict, policy=policy, runs=values["runs"])
            if not against:
                return found, None
            with run_folder(against) as other:
                seen = check(found, other, runs=values["runs"])
                return found, msgspec.structs.replace(seen, trace=against)

    if output is None:
        found, seen = work()
    else:
        with OutputFolder(output, force=values["force"], own=FILES) as folder:
            found, seen = work()
            write(found, seen, folder.path)
    _show(found, seen, as_json=values["json"])


def _show(found: "Calibration", seen: "Foresight | None", *, as_json: bool) -> None:
    import msgspec

    from rota.study.calibration import pages

    if as_json:
        fitted = {name: msgspec.to_builtins(e) for name, e in found.fit.named.items()}
        data = {"fit": fitted, "errors": msgspec.to_builtins(found.errors)}
        if seen is not None:
            data["prediction"] = msgspec.to_builtins(seen.metrics)
            data["prediction_errors"] = msgspec.to_builtins(seen.errors)
        emit(data, "json")
        return
    table(pages.FIT_HEADINGS, pages.fit_rows(found.fit), numbers=True)
    table(pages.ERROR_HEADINGS, pages.error_rows(found.errors), numbers=True)
    if seen is not None:
        click.echo(f"{seen.trace} under {seen.policy}:")
        if seen.errors:
            table(pages.CHECK_HEADINGS, pages.error_rows(seen.errors), numbers=True)
        else:
            table(pages.PREDICTION_HEADINGS, pages.prediction_rows(seen.metrics), numbers=True)
    warn_about([*pages.caveats(found.fit), *found.notes])
