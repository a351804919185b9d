"""Microsoft's Philly trace (Jeon et al., ATC 2019): the job log, or the csv derived from it.

The derived csv has the columns timestamp, duration, num_gpus, gpu_time, cluster, in no order. Jobs
are sorted by time (ties as in the file), `submit_s` counts from the first job kept, and the cluster
column (the virtual cluster) is the tenant. Jobs of the csv are numbered from 0 in this order; those
of the log keep their ids. Durations are whole seconds, at least 1. Times have no zone: they are
taken as one clock that runs evenly, though the real one was set back on 2017-11-05.

Everything is kept unless an option says otherwise: `after` and `before` (times of submission, the
first included, the second not), `vc` (names, a/b/c), `min_duration` (seconds); for the csv `ignore`
(unknown columns); for the log `runtime` (of several attempts: their `sum`, the `span` from first
start to last end, the `last` one), `unfinished` (`censor` at the end of the log, or `drop`),
`statuses` (Pass/Killed/Failed) and `utilisation` (the file `cluster_gpu_util`).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import compress, repeat
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from rota.core.errors import OptionError, TraceError
from rota.core.jobs import Behaviour, JobSpec, Request
from rota.core.registry import parse_params
from rota.core.workload import Quality, Workload
from rota.traces.format import Head, first_look, share_of
from rota.traces.formats.philly.frame import SHORT, quick_frame
from rota.traces.formats.philly.log import EPOCH, Batch, LogParams, read_log, read_time
from rota.traces.formats.philly.machines import machine_list, machines_beside, read_uses
from rota.traces.formats.plain import NOT_NEGATIVE
from rota.traces.imported import Imported
from rota.traces.observed import Observed, Seen
from rota.traces.table import Rule, Schema, Table, read_table

SCHEMA = Schema(
    required=("timestamp", "duration", "num_gpus"),
    optional=("gpu_time", "cluster"),
    remedy="ignore unknown columns with --format philly:ignore=yes",
)

_GPUS = Rule(least=1, whole=True)
_LOG_KEYS = ('"jobid"', '"attempts"')


class PhillyParams(LogParams, frozen=True):
    """Options of the format."""

    after: str = ""
    before: str = ""
    vc: tuple[str, ...] = ()
    min_duration: float = 0.0
    ignore: bool = False


class Philly:
    """Reads the derived csv and the original log."""

    name = "philly"
    description = "Microsoft Philly: the job log (JSON) or the csv derived from it"
    verified = True
    forms: ClassVar[Mapping[str, bool]] = {"csv": True, "JSON log with machine list": False}

    def recognises(self, head: Head) -> float:
        """By the csv's columns or the log's keys."""
        if head.is_json:
            return float(any(key in head.text for key in _LOG_KEYS))
        return share_of((*SCHEMA.required, *SCHEMA.optional), head)

    def read(self, path: Path, options: Mapping[str, str]) -> Workload:
        """All jobs in the order of submission."""
        batch, quality = self._batch(path, options)
        return _workload(path, batch, quality)

    def companions(self, path: Path, options: Mapping[str, str]) -> Sequence[Path]:  # noqa: ARG002
        """The machines listed beside the file."""
        file = machine_list(path)
        return () if file is None else (file,)

    def load(self, path: Path, options: Mapping[str, str]) -> Imported:
        """The jobs; of the log also every attempt, and the machines listed beside it."""
        return self._quick(path, options) or self._careful(path, options)

    def _quick(self, path: Path, options: Mapping[str, str]) -> Imported | None:
        """A csv of which everything is wanted, and nothing is wrong with it."""
        params: PhillyParams = parse_params("format philly", PhillyParams, options)
        if set(options) - {"ignore"} or first_look(path).is_json:
            return None
        found = quick_frame(path, ignore=params.ignore)
        if found is None:
            return None
        frame, quality, origin_s = found
        cluster, notes = machines_beside(path, ())
        origin = str(EPOCH + timedelta(seconds=origin_s))
        return Imported(
            frame, cluster=cluster, quality=quality, name=path.stem, origin=origin, notes=notes
        )

    def _careful(self, path: Path, options: Mapping[str, str]) -> Imported:
        batch, quality = self._batch(path, options)
        workload = _workload(path, batch, quality)
        origin_s = min(batch.times_s)
        order = sorted(range(len(batch.times_s)), key=batch.times_s.__getitem__)
        seen = [
            _shifted(attempt, index, origin_s)
            for index, row in enumerate(order)
            for attempt in (batch.seen[row] if batch.seen else ())
        ]
        params: PhillyParams = parse_params("format philly", PhillyParams, options)
        uses = read_uses(Path(params.utilisation)) if params.utilisation else None
        cluster, notes = machines_beside(path, batch.sizes, uses)
        return Imported(
            workload,
            observed=Observed.of(seen) if seen else None,
            cluster=cluster,
            origin=str(EPOCH + timedelta(seconds=origin_s)),
            notes=notes,
        )

    def _batch(self, path: Path, options: Mapping[str, str]) -> tuple[Batch, Quality]:
        params: PhillyParams = parse_params("format philly", PhillyParams, options)
        keep = _filters(params)
        if first_look(path).is_json:
            batch, quality = read_log(path, params)
        else:
            _refuse_log_options(path, options)
            batch = _read_csv(path, ignore=params.ignore)
            quality = Quality(rows=len(batch.times_s))
        for why, column, fine in keep:
            batch = _filter(batch, why, list(map(fine, getattr(batch, column))), quality)
        if not batch.times_s:
            dropped = ", ".join(f"{many} {why}" for why, many in quality.dropped.items())
            raise TraceError(f"{path}: no job is left ({dropped}): relax the options")
        return batch, quality


FORMAT = Philly()


def _shifted(attempt: Seen, job: int, origin_s: float) -> Seen:
    end_s = None if attempt.end_s is None else attempt.end_s - origin_s
    return msgspec.structs.replace(
        attempt, job=job, start_s=attempt.start_s - origin_s, end_s=end_s
    )


def _filters(params: PhillyParams) -> list[tuple[str, str, Callable[[Any], bool]]]:
    """What is dropped and counted: (why, column, what is fine)."""
    filters: list[tuple[str, str, Callable[[Any], bool]]] = []
    if params.after:
        why = f"before {params.after}"
        filters.append((why, "times_s", _bound_s(params, "after").__le__))
    if params.before:
        why = f"not before {params.before}"
        filters.append((why, "times_s", _bound_s(params, "before").__gt__))
    if params.vc:
        filters.append(("of other virtual clusters", "tenants", frozenset(params.vc).__contains__))
    if params.min_duration:
        why = f"shorter than {params.min_duration:g} s"
        filters.append((why, "durations_s", params.min_duration.__le__))
    return filters


def _bound_s(params: PhillyParams, key: str) -> float:
    text = getattr(params, key)
    time_s = read_time(text)
    if time_s is None:
        raise OptionError(
            f"format philly: {key}={text} is not a time: write YYYY-MM-DD or YYYY-MM-DD HH:MM:SS"
        )
    return time_s


def _refuse_log_options(path: Path, options: Mapping[str, str]) -> None:
    for key in LogParams.__struct_fields__:
        if key in options:
            raise OptionError(
                f"format philly: {key}={options[key]} is for the job log, but {path} is the "
                f"derived csv, which has no attempts: leave the option out"
            )


def _read_csv(path: Path, *, ignore: bool) -> Batch:
    table = read_table(path, SCHEMA, ignore=ignore)
    return Batch(
        ids=[],
        times_s=_times_s(table),
        durations_s=table.numbers("duration", NOT_NEGATIVE),
        gpus=table.numbers("num_gpus", _GPUS),
        tenants=table.texts("cluster"),
        users=[],
    )


def _times_s(table: Table) -> list[float]:
    texts = table.columns["timestamp"]
    try:
        return [(time - EPOCH).total_seconds() for time in map(datetime.fromisoformat, texts)]
    except (ValueError, TypeError):  # not a time, or one with a zone
        table.refuse(
            "timestamp",
            [read_time(text) is None for text in texts],
            "is not a time: write YYYY-MM-DD HH:MM:SS, without a zone",
        )
        raise


def _filter(batch: Batch, why: str, fine: list[bool], quality: Quality) -> Batch:
    dropped = fine.count(False)
    if dropped:
        quality.dropped[why] = dropped
    columns = (getattr(batch, column) for column in Batch.__struct_fields__)
    return Batch(*(list(compress(column, fine)) for column in columns))


def _workload(path: Path, batch: Batch, quality: Quality) -> Workload:
    times_s = batch.times_s
    order = sorted(range(len(times_s)), key=times_s.__getitem__)
    origin_s = times_s[order[0]]
    durations_s = [float(int(duration_s)) for duration_s in batch.durations_s]
    short = sum(duration_s < 1 for duration_s in durations_s)
    if short:
        quality.repaired[SHORT] = short
    requests = {size: Request.of(size) for size in set(batch.gpus)}
    ids = map(batch.ids.__getitem__, order) if batch.ids else map(str, range(len(order)))
    specs = map(
        JobSpec,
        ids,
        [times_s[i] - origin_s for i in order],
        [requests[batch.gpus[i]] for i in order],
        map(batch.tenants.__getitem__, order),
        map(batch.users.__getitem__, order) if batch.users else repeat(""),
    )
    behaviours = [Behaviour(durations_s[i] or 1.0) for i in order]
    quality.kept = len(order)
    return Workload(list(specs), behaviours, name=path.stem, quality=quality)
