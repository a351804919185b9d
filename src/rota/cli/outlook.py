"""`rota when` and `rota why`."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli.client import (
    clean,
    complete_jobs,
    connect,
    job_id,
    moment,
    server_options,
    shortened,
    span,
)
from rota.cli.options import FILES, Finite
from rota.cli.progress import ProgressBar
from rota.cli.show import FORMAT, emit, say, second
from rota.core.errors import InputError
from rota.core.verdict import Verdict
from rota.wire import Forecast

if TYPE_CHECKING:
    from rota.core.jobs import JobSpec
    from rota.jobfile.model import JobFile
    from rota.study.forecast import Outlook

F = TypeVar("F", bound=Callable[..., Any])

_URLS = ("http://", "https://")
_SNAPSHOT = b"\x78\x01"  # how a snapshot begins
_LIVE = "live"

_JOB = (
    click.option("--gpus", metavar="N", type=Finite(min=0),
                 help="A job that is not submitted yet, with so many GPUs (per node)."),
    click.option("--nodes", metavar="N", type=click.IntRange(min=1),
                 help="... on so many nodes."),
    click.option("--queue", metavar="Q", help="... in this queue (beside Slurm: partition)."),
    click.option("--gpu-type", metavar="T", help="... on GPUs of this type: a100, or a100|h100."),
    click.option("--cpus", metavar="N", type=Finite(min=0), help="... with CPUs."),
    click.option("--mem", metavar="M", help="... with memory: 64GB."),
    click.option("--resource", metavar="KIND=N", multiple=True,
                 help="... with licences: matlab=2 (of a daemon); may be repeated."),
    click.option("--gpu-mem-gib", metavar="M", type=Finite(min=0),
                 help="... with so much memory of each GPU, or of its part of one."),
    click.option("--time", metavar="T",
                 help="... that is expected to run so long, or has this limit: 2h."),
    click.option("--image", metavar="I",
                 help="... in a container, so on nodes that run images only (of a daemon)."),
    click.option("--user", metavar="U", help="... of this user (beside Slurm)."),
)  # fmt: skip
_SIDE = (
    click.option("--slurm", metavar="DIR|live", shell_complete=FILES,
                 help="Beside a Slurm: the output of its commands in a folder, or ask them now "
                      "(only reading)."),
    click.option("--save", metavar="DIR", type=click.Path(path_type=Path),
                 help="With --slurm live: keep what its commands printed in this folder."),
    click.option("--at", metavar="TIME",
                 help="With --slurm DIR: when the commands were called, if they do not tell: "
                      "2026-11-18T06:38:10."),
    click.option("--tz", metavar="ZONE",
                 help="With --slurm DIR: the zone of its times, e.g. Europe/Berlin."),
)  # fmt: skip
_RUNS = click.option(
    "--runs", metavar="N", type=click.IntRange(1, 200), default=20, show_default=True,
    help="Number of simulations.",
)  # fmt: skip
_FROZEN = (
    click.option(
        "--with-arrivals", is_flag=True,
        help="With a snapshot: the rest of the trace arrives; otherwise no job arrives."),
    click.option(
        "--exact", is_flag=True,
        help="With a snapshot: durations are those of the trace; otherwise they are drawn."),
    click.option(
        "--seed", metavar="N", type=click.IntRange(min=0), default=0, show_default=True,
        help="With a snapshot or beside Slurm: random seed of the draws."),
)  # fmt: skip


def _asked(command: F) -> F:
    """What both commands take."""
    arguments = (
        click.argument("place", metavar="[SNAPSHOT|URL]", required=False,
                       shell_complete=complete_jobs),
        click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_jobs),
    )  # fmt: skip
    for option in reversed((*arguments, *_JOB, *_SIDE, _RUNS, *_FROZEN, FORMAT)):
        command = option(command)
    return server_options(command)


class OutlookQuestion:
    """Who is asked, and about which job."""

    def __init__(self, place: str | None, job: str | None, values: Mapping[str, Any]) -> None:
        self.values = values
        self.new = _described(values)
        self.slurm: str | None = values["slurm"]
        self.place, self.job = self._sorted(place, job)
        self._refuse_nonsense()

    def _sorted(self, place: str | None, job: str | None) -> tuple[str | None, str | None]:
        """Of one argument: is it a place or a job?"""
        if place is None or job is not None:
            return place, job
        is_place = place.startswith(_URLS) or (
            self.slurm is None and _is_snapshot(Path(place)) and (self.new is not None)
        )
        if is_place or (self.slurm is None and _is_snapshot(Path(place))):
            return place, None
        return None, place

    def _refuse_nonsense(self) -> None:
        if (self.job is None) == (self.new is None):
            if self.job is None:
                raise click.UsageError("Missing argument 'JOB' (or --gpus, for a new one).")
            raise click.UsageError("Give a JOB, or --gpus and so on for a new one: not both.")
        if self.slurm is not None and self.place is not None:
            raise click.UsageError("--slurm has no SNAPSHOT or URL: rota when JOB --slurm DIR")
        if self.slurm is None and any(self.values[key] for key in ("save", "at", "tz")):
            raise click.UsageError("--save, --at and --tz belong to --slurm")
        if self.values["image"] and (self.slurm is not None or self.frozen):
            raise click.UsageError(
                "--image needs a daemon, which knows the nodes that run containers: leave it out "
                "with --slurm and with a SNAPSHOT"
            )
        if self.values["resource"] and (self.slurm is not None or self.frozen):
            raise click.UsageError("--resource needs a daemon, which knows its licences")
        if self.values["gpu_mem_gib"] and self.slurm is not None:
            raise click.UsageError(
                "--gpu-mem-gib: Slurm does not tell how much memory its GPUs have: ask for a "
                "--gpu-type that has as much"
            )
        if not self.frozen and (self.values["with_arrivals"] or self.values["exact"]):
            raise click.UsageError(
                "--with-arrivals and --exact need a snapshot: rota when SNAPSHOT JOB"
            )

    @property
    def frozen(self) -> bool:
        """Is it a snapshot of a simulation that is asked?"""
        return self.place is not None and not self.place.startswith(_URLS)

    @property
    def snapshot(self) -> Path:
        """Its file."""
        path = Path(self.place or "")
        if not path.is_file():
            raise InputError(
                f"{str(path)!r} is neither a file nor a URL: name what "
                f"`rota simulate --snapshot-at` wrote"
            )
        return path

    def spec(self) -> "str | JobSpec":
        """The job, for those who are no daemon."""
        from rota.jobfile.convert import to_spec

        if self.new is None:
            return self.job or ""
        return to_spec(self.new, "new", 0.0, self.values["user"] or "")

    def slurm_answer(self) -> "Any":
        """What a Slurm is asked."""
        from rota.study.beside.answer import BesideSlurm
        from rota.study.beside.saved import read_saved, save_live

        if self.slurm == _LIVE:
            import tempfile

            kept: Path | None = self.values["save"]
            if kept is not None:
                save_live(kept)
                return BesideSlurm(read_saved(kept))
            with tempfile.TemporaryDirectory(prefix="rota-slurm-") as folder:
                save_live(Path(folder))
                return BesideSlurm(read_saved(Path(folder)))
        folder_ = Path(self.slurm or "")
        return BesideSlurm(read_saved(folder_, at=self.values["at"], zone=self.values["tz"]))


def _described(values: Mapping[str, Any]) -> "JobFile | None":
    """The job that the options describe."""
    keys = ("gpus", "nodes", "queue", "gpu_type", "cpus", "mem", "gpu_mem_gib", "time", "image")
    if values["image"] == "":
        raise InputError("--image is '': give one, or leave the option out")
    if all(values[key] is None for key in keys) and not values["resource"]:
        return None
    from rota.cli.submit import amounts_of
    from rota.jobfile.check import check
    from rota.jobfile.model import JobFile, Resources
    from rota.jobfile.quantities import duration_s

    gpus = 1 if values["gpus"] is None else values["gpus"]
    if values["time"] is not None:
        duration_s(values["time"], "--time")  # by the name that it has here
    job = JobFile(
        run="true",
        resources=Resources(
            gpus=int(gpus) if float(gpus).is_integer() else gpus,
            gpu_type=values["gpu_type"] or "",
            cpus=values["cpus"] or 0.0,
            mem=values["mem"] or 0.0,
            kinds=amounts_of(values["resource"]),
            gpu_mem_gib=values["gpu_mem_gib"] or 0.0,
        ),
        nodes=values["nodes"] or 1,
        queue=values["queue"] or "",
        estimate=values["time"],
        image=values["image"] or "",
    )
    check(job)
    return job


def _is_snapshot(path: Path) -> bool:
    """Does a file begin like one? A job may have the name of a file."""
    try:
        with path.open("rb") as file:
            return file.read(2) == _SNAPSHOT
    except OSError:
        return False


# --- when -----------------------------------------------------------------------------------------


@click.command()
@_asked
def when(
    *, place: str | None, job: str | None, output: str, server: str | None, token_file: str | None,
    **values: Any,
) -> None:  # fmt: skip
    """Tell when a JOB will start, by simulating on from the present state.

    With one argument the daemon is asked for its own future; with two, the daemon at a URL, or a
    SNAPSHOT, the file that `rota simulate --snapshot-at T` wrote. With --slurm it is a job of a
    Slurm. A job that is not submitted yet is described by --gpus, --queue and so on.

    \b
    Examples:
      rota when 17
      rota when resnet-50 --runs 100 -o json
      rota when --gpus 16 --queue research
      rota when --gpus 1 --image docker.io/pytorch/pytorch:latest
      rota when out/snapshot.rota 17
      rota when out/snapshot.rota 17 --exact --with-arrivals
      rota when 4711 --slurm live
      rota when --gpus 8 --queue gpu --time 4h --slurm saved
    """  # noqa: D301 - \b keeps click from wrapping the lines
    asked = OutlookQuestion(place, job, values)
    if asked.slurm is not None:
        with ProgressBar("forecasting") as bar:
            answer = asked.slurm_answer()
            found = answer.when(
                asked.spec(), runs=values["runs"], seed=values["seed"], told=bar
            )  # fmt: skip
        _print_beside(found, output)
        return
    if asked.frozen:
        _when_frozen(asked, output)
        return
    with connect(asked.place or server, token_file) as rota:
        if asked.new is not None:
            forecast = rota.when_new(asked.new, runs=values["runs"])
        else:
            forecast = rota.when(job_id(rota, asked.job or ""), runs=values["runs"])
    _print_forecast(forecast, output)


def _when_frozen(asked: OutlookQuestion, output: str) -> None:
    import msgspec

    from rota.study.forecast import forecast

    path, known = asked.snapshot, asked.values
    with ProgressBar("forecasting") as bar:
        found = forecast(
            path, asked.spec(), runs=known["runs"], exact=known["exact"],
            arrivals=known["with_arrivals"], seed=known["seed"], told=bar,
        )  # fmt: skip
    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    say(f"job {clean(found.id)} ({found.state}) {found.text}")
    if not found.runs:
        return
    click.echo(f"{'now:':<11}second {second(found.now_s)}")
    for label, at_s in (
        ("starts", found.starts_s),
        ("earliest", found.earliest_s),
        ("latest", found.latest_s),
    ):
        if at_s is not None:
            click.echo(f"{label + ':':<11}second {second(at_s)} (in {span(at_s - found.now_s)})")
    if found.why:
        say(f"{'why:':<11}{clean(found.why)}", indent=11)
    _print_doubts(found)


def _print_forecast(found: Forecast, output: str) -> None:
    import msgspec

    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    say(f"job {found.id} ({found.state}) {clean(found.text)}")
    if not found.runs:  # nothing to foresee
        if found.starts_at is not None:
            click.echo(f"started:   {moment(found.starts_at)}")
        return
    _print_times(found, time.time())
    _print_doubts(found)


def _print_times(found: Forecast, now: float) -> None:
    for label, at in (
        ("starts", found.starts_at),
        ("earliest", found.earliest_at),
        ("latest", found.latest_at),
    ):
        if at is not None:
            click.echo(f"{label + ':':<11}{moment(at)} (in {span(at - now)})")


def _print_beside(found: Any, output: str) -> None:
    """A forecast beside a Slurm: also who is ahead, and how often such intervals were right."""
    import msgspec

    if output != "table":
        emit(msgspec.to_builtins(found), output)
        return
    forecast = found.forecast
    say(f"job {clean(forecast.id)} ({forecast.state}) {clean(forecast.text)}")
    if not forecast.runs:
        if forecast.starts_at is not None:
            click.echo(f"started:   {moment(forecast.starts_at)}")
        return
    click.echo(f"now:       {moment(found.now_at)}")
    _print_times(forecast, found.now_at)
    if found.ahead:
        say(f"ahead:     {shortened(found.ahead, 10)} ({found.ahead_count} in all)", indent=11)
    _print_doubts(forecast)
    say(f"intervals: {found.starts_backtest}", indent=11)


def _print_doubts(found: "Forecast | Outlook") -> None:
    """How often it did not start, and what all of it rests on."""
    if found.never:
        click.echo(f"in {found.never} of {found.runs} simulations it did not start in time")
    if found.assumptions:
        told = [f"{key}: {value}" for key, value in found.assumptions.items()]
        say(f"assumed:   {shortened(told, 10)}", indent=11)
    if found.backtest is not None:
        say(f"back-test: {found.backtest}", indent=11)


# --- why ------------------------------------------------------------------------------------------


@click.command()
@_asked
def why(
    *, place: str | None, job: str | None, output: str, server: str | None, token_file: str | None,
    **values: Any,
) -> None:  # fmt: skip
    """Name the one reason why a JOB does not start, and the smallest change that would start it.

    The change is tried in a copy of the present state: fewer GPUs, less GPU memory,
    another GPU type, another queue or a shorter time limit; if none helps, when it is expected to
    start. `rota explain` has all that a job waited for so far.

    \b
    Examples:
      rota why 17
      rota why --gpus 16 --queue research
      rota why out/snapshot.rota 17
      rota why 4711 --slurm live
      rota why 4711 --slurm saved -o json
    """  # noqa: D301 - \b keeps click from wrapping the lines
    import msgspec

    asked = OutlookQuestion(place, job, values)
    if asked.slurm is not None:
        found = asked.slurm_answer().why(asked.spec(), runs=values["runs"], seed=values["seed"])
    elif asked.frozen:
        from rota.study.forecast import why as why_frozen

        found = why_frozen(
            asked.snapshot, asked.spec(), runs=values["runs"], exact=values["exact"],
            arrivals=values["with_arrivals"], seed=values["seed"],
        )  # fmt: skip
    else:
        with connect(asked.place or server, token_file) as rota:
            if asked.new is not None:
                found = rota.why_new(asked.new, runs=values["runs"])
            else:
                found = rota.why(job_id(rota, asked.job or ""), runs=values["runs"])
    if output != "table":
        emit(msgspec.to_builtins(found), output)
    else:
        _print_verdict(found)


def _print_verdict(found: Verdict) -> None:
    say(f"job {clean(found.id)} ({found.state}): {clean(found.text)}")
    if found.reason:
        click.echo(f"reason:    {found.reason}")
    for line in found.evidence:
        say(f"evidence:  {clean(line)}", indent=11)
    if found.ahead:
        ids = shortened(found.ahead, 10)
        say(f"ahead:     {ids} ({found.ahead_count} in all)", indent=11)
    if found.remedy is not None:
        say(f"change:    {clean(found.remedy.text)}", indent=11)
    for other in found.others:
        say(f"or:        {clean(other.text)}", indent=11)
