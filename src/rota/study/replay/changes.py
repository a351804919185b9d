"""What is to be different in a replay: machines added and removed, limits of tenants, more jobs.

- *Added* (`4x8`, `12x8:a100@gpu+debug`). New nodes are like those that are there: the CPUs and
  memory of the most common node of that size in the same partitions (or per GPU of the most common
  one). They are in the partitions that are named and in no other; with one partition or none there
  is nothing to name. Of other labels (features) they have those that every node of their type in
  these partitions has.
- *Removed* (`a[001-008],gpu*,rack=r1`). A host list, names with `*` and `?`, or all nodes with a
  `label=`, in a `partition=`, with GPUs of a `type=`, or at a place of a level (`rack=`). What
  matches no node is an error: a typing error must not pass for "it changes nothing".
- *Windows* (`nodes=n[0-3],start=8h,for=2h`). Maintenance and reservations, as in a simulation;
  times are counted from the beginning of the log.
- *More jobs* (`new-group.csv`, `new-group.csv@gpu`). A workload that comes beside the jobs of the
  log; its second 0 is that of the log. Where the log has several partitions, its jobs are in the
  one that is named, unless they name one themselves (column `partition`); without both they are in
  the one with the most jobs, and that is said.

A partition is a label that jobs ask for.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import polars as pl

from rota.core.errors import OptionError
from rota.core.hostlist import expand, split_list
from rota.core.topology import NodeSpec
from rota.core.words import duration
from rota.traces.cluster import parse_counts
from rota.traces.imported import Imported
from rota.traces.observed import Observed
from rota.traces.read import read_trace
from rota.traces.schema import events_frame
from rota.traces.tools.change import with_jobs
from rota.traces.tools.merge import NamedTrace, merge

RACK = "rack"
_SHORT = 0.5  # of the time of the log: so much shorter is reported
MOST_NAMED = 12  # names in a message


class ReplayChanges(msgspec.Struct, frozen=True):
    """Nodes to add (`4x8@gpu`), nodes to remove, GPUs of tenants at most, workloads to add."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    quotas: tuple[tuple[str, float], ...] = ()
    also: tuple[str, ...] = ()
    guarantees: tuple[tuple[str, float], ...] = ()  # GPUs that others together leave to a tenant
    more: tuple[tuple[str, float], ...] = ()  # GPUs more for a queue
    maintenance: tuple[str, ...] = ()  # as `core.windows` reads them
    reserve: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.add or self.remove or self.quotas or self.also or self.guarantees or self.more
            or self.maintenance or self.reserve
        )  # fmt: skip

    def describe(self) -> str:
        """`+4x8@gpu, -n3, vision<=64, also new-group`."""
        quotas = [f"{tenant}<={most:g}" for tenant, most in self.quotas]
        also = [f"also {_place_of(text)[0].stem}" for text in self.also]
        kept = [f"{tenant}>={least:g}" for tenant, least in self.guarantees]
        more = [f"{queue}+{gpus:g}" for queue, gpus in self.more]
        return ", ".join(
            [
                *(f"+{one}" for one in self.add), *(f"-{n}" for n in self.remove), *quotas, *kept,
                *more, *also, *(f"maintenance {text}" for text in self.maintenance),
                *(f"reserved {text}" for text in self.reserve),
            ]
        )  # fmt: skip

    def resolved(
        self, nodes: Sequence[NodeSpec], partitions: Sequence[str], tenants: Iterable[str]
    ) -> "ReplayChanges":
        """With the nodes that `more` stands for.

        GPUs for a partition are nodes in it, like the most common of its own. GPUs for a tenant are
        nodes like the most common of all, and what there is today is all that others may use.
        """
        add, kept = list(self.add), list(self.guarantees)
        known = {*tenants}
        for queue, gpus in self.more:
            own = [node for node in nodes if queue in node.labels and node.gpus]
            if queue not in partitions and queue not in known:
                names = ", ".join(sorted({*partitions, *filter(None, known)}))
                raise OptionError(f"{queue}={gpus:g}: no partition or tenant; there are: {names}")
            if queue not in partitions:
                own = [node for node in nodes if node.gpus]
            if not own:
                raise OptionError(f"{queue}={gpus:g}: there is no node with GPUs to add more of")
            (size, kind), _ = Counter((node.gpus, node.gpu_type) for node in own).most_common(1)[0]
            count = -(-int(gpus) // size)
            place = f"@{queue}" if queue in partitions and len(partitions) > 1 else ""
            add.append(f"{count}x{size}{f':{kind}' if kind else ''}{place}")
            if queue not in partitions:
                kept.append((queue, float(count * size)))
        return msgspec.structs.replace(self, add=tuple(add), guarantees=tuple(kept))


def parse_quota(
    text: str, what: str = "quota", form: str = "TENANT=GPUS, e.g. vision=64"
) -> tuple[str, float]:
    """From `team=64`; `what` and `form` are for the message if it is not."""
    tenant, equals, amount = text.rpartition("=")
    try:
        most = float(amount)
    except ValueError:
        most = -1.0
    if not equals or not tenant.strip() or not 0 <= most < float("inf"):
        raise OptionError(f"{what} {text!r} is not understood: write {form}")
    return tenant.strip(), most


def changed(
    nodes: Sequence[NodeSpec],
    changes: ReplayChanges,
    partitions: Sequence[str] = (),
    levels: Sequence[str] = (),
) -> tuple[NodeSpec, ...]:
    """The machines with those added and without those removed.

    Args:
        nodes: The machines as they are.
        changes: What is to be different.
        partitions: Labels that jobs ask for.
        levels: Names of the levels above nodes, outermost first.
    """
    gone: set[str] = set()
    for text in changes.remove:
        for piece in split_list(text, OptionError):
            gone |= _matched(nodes, piece.strip(), levels)
    left = [node for node in nodes if node.name not in gone]
    for text in changes.add:
        left += _added(nodes, text, partitions, {node.name for node in [*nodes, *left]})
    if not left:
        raise OptionError("no node is left: remove fewer")
    return tuple(left)


def level_names(nodes: Iterable[NodeSpec], known: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of all levels above nodes; those without a name are `level1`, `level2`, ..."""
    depth = max((len(node.path) for node in nodes), default=0)
    return tuple(known[i] if i < len(known) else f"level{i + 1}" for i in range(depth))


# --- more jobs -----------------------------------------------------------------------------------


class Enlarged(msgspec.Struct):
    """The jobs of the log and those that were added, as one trace.

    `numbers`: of each of its jobs, the position in the log; those that were added come after.
    `added`: by name of what was added, the numbers of its jobs.
    """

    imported: Imported
    numbers: list[int]
    added: dict[str, list[int]]
    warnings: list[str]


def enlarged(imported: Imported, also: Sequence[str], partitions: Sequence[str]) -> Enlarged:
    """The jobs of the log with those of other workloads.

    Args:
        imported: The log; what happened in it is left out.
        also: Workloads, as the user writes them.
        partitions: Labels that jobs of the log ask for.
    """
    log = with_jobs(imported, imported.jobs, observed=Observed())
    parts = [NamedTrace("log", log)]
    warnings: list[str] = []
    for text in also:
        path, place = _place_of(text)
        other = read_trace(path)
        jobs, told = _in_partition(other.jobs, text, place, imported.jobs, partitions)
        taken = {part.name for part in parts}
        names = (f"{path.stem}-{i}" if i else path.stem for i in (0, *range(2, len(also) + 3)))
        name = next(name for name in names if name not in taken)
        extra = with_jobs(other, jobs, observed=Observed(), events=events_frame())
        extra.cluster = ()
        parts.append(NamedTrace(name, extra))
        warnings += [*told, *_doubts(name, imported, jobs)]
    merged = merge(parts)
    numbers = [0] * len(merged.imported)
    added: dict[str, list[int]] = {}
    number = 0
    for part, positions in zip(parts, merged.positions, strict=True):
        for position in positions:
            numbers[position] = number
            number += 1
        if part is not parts[0]:
            added[part.name] = list(range(number - len(positions), number))
    return Enlarged(merged.imported, numbers, added, warnings)


def _place_of(text: str) -> tuple[Path, str | None]:
    """The file and the partition of `new-group.csv@gpu`."""
    path, at, place = text.rpartition("@")
    if not at or Path(text).exists():
        return Path(text), None
    return Path(path), place.strip()


def _in_partition(
    jobs: pl.DataFrame, text: str, place: str | None, log: pl.DataFrame, partitions: Sequence[str]
) -> tuple[pl.DataFrame, list[str]]:
    """The jobs, each with the label of its partition if the log has partitions; and warnings."""
    there = ", ".join(sorted(partitions))
    if place is not None and place not in partitions:
        raise OptionError(
            f"also {text!r}: no partition {place!r}: there are: {there or 'none, leave it out'}"
        )
    if not partitions:
        return jobs, []
    own = pl.col("labels").list.len() > 0
    named = pl.col("partition") != ""
    odd = jobs.filter(~own & named & ~pl.col("partition").is_in(list(partitions)))
    if odd.height:
        raise OptionError(
            f"also {text!r}: job {odd['job_id'][0]}: no partition {odd['partition'][0]!r}: there "
            f"are: {there}"
        )
    last, warnings = place, []
    if last is None:
        last = str(log["labels"].explode().drop_nulls().mode().sort()[0])
        many = jobs.filter(~own & ~named).height
        if many and len(partitions) > 1:
            other = min(name for name in partitions if name != last)
            warnings.append(
                f"{text} does not say in which partition {many:,} of its jobs are: taken for "
                f"{last}, where most jobs of the log are; write {text}@{other} for another, or "
                f"give it a column partition; there are: {there}"
            )
    partition = pl.when(named).then(pl.col("partition")).otherwise(pl.lit(last))
    placed = jobs.with_columns(
        labels=pl.when(own).then(pl.col("labels")).otherwise(pl.concat_list(partition)),
        partition=pl.when(own).then(pl.col("partition")).otherwise(partition),
    )
    return placed, warnings


def _doubts(name: str, log: Imported, jobs: pl.DataFrame) -> list[str]:
    """What makes a workload that is added an odd neighbour."""
    found = []
    log_s, span_s = (_last_submission(frame) for frame in (log.jobs, jobs))
    both = (
        f"{name}: its jobs come within {duration(span_s)}, those of the log within "
        f"{duration(log_s)}"
    )
    if span_s < _SHORT * log_s:
        found.append(f"{both}: make it as long as the log to see what lasts")
    elif _SHORT * span_s > log_s:
        found.append(f"{both}: later ones meet no others (`rota trace change --window` cuts them)")
    estimated = log.jobs["estimate_s"].null_count() < log.jobs.height
    if estimated and jobs["estimate_s"].null_count() == jobs.height:
        found.append(
            f"{name}: has no time limits (estimate_s), but the log has: policies that backfill "
            f"take its jobs for endless"
        )
    return found


def _last_submission(jobs: pl.DataFrame) -> float:
    latest = jobs["submit_s"].max()
    return float(latest) if isinstance(latest, (int, float)) else 0.0


# --- nodes to remove -----------------------------------------------------------------------------


def _matched(nodes: Sequence[NodeSpec], piece: str, levels: Sequence[str]) -> set[str]:
    """Names of the nodes that a host list, a pattern or `key=value` means."""
    key, equals, value = piece.partition("=")
    if equals:
        read = _readers(nodes, levels)
        if key not in read:
            raise OptionError(
                f"remove {piece!r}: nodes have no {key!r}: write "
                f"{', '.join(f'{name}=...' for name in read)}, or names of nodes"
            )
        return _named_so(f"{key}=", value, {node.name: read[key](node) for node in nodes})
    return _named_so("", piece, {node.name: (node.name,) for node in nodes})


def _readers(
    nodes: Sequence[NodeSpec], levels: Sequence[str]
) -> dict[str, Callable[[NodeSpec], tuple[str, ...]]]:
    """How to read what a key names from a node."""
    names = level_names(nodes, levels)
    read: dict[str, Callable[[NodeSpec], tuple[str, ...]]] = {
        "partition": lambda node: node.labels,
        "label": lambda node: node.labels,
        "type": lambda node: (node.gpu_type,) if node.gpu_type else (),
    }
    for depth, level in enumerate(names):
        read[level] = lambda node, depth=depth: node.path[depth : depth + 1]  # type: ignore[misc]
    if names and RACK not in names:  # people call the level next to nodes so
        read[RACK] = lambda node: node.path[-1:]
    return read


def _named_so(prefix: str, text: str, values: dict[str, tuple[str, ...]]) -> set[str]:
    """Nodes with a value that is in the list; every entry of the list must match."""
    of: dict[str, set[str]] = {}
    for node, have in values.items():
        for one in have:
            of.setdefault(one, set()).add(node)
    found: set[str] = set()
    lost: list[str] = []
    for wanted in expand(text, OptionError) or ("",):
        if "*" in wanted or "?" in wanted:
            mine = {node for one in of if fnmatchcase(one, wanted) for node in of[one]}
        else:
            mine = of.get(wanted, set())
        found |= mine
        lost += [] if mine else [wanted]
    if lost:
        raise OptionError(_unmatched(prefix, lost, of))
    return found


def _unmatched(prefix: str, lost: Sequence[str], known: Iterable[str]) -> str:
    names = sorted(known)
    close = [name for one in lost[:3] for name in get_close_matches(one, names, n=3)]
    near = list(dict.fromkeys(close))
    what = ", ".join(f"{prefix}{one}" for one in lost[:MOST_NAMED])
    more = f" and {len(lost) - MOST_NAMED:,} more" if len(lost) > MOST_NAMED else ""
    shown = ", ".join(f"{prefix}{one}" for one in (near or names[:MOST_NAMED]))
    hint = f"{'did you mean' if near else 'there are'} {shown}{'?' * bool(near)}"
    return f"remove {what!r}{more}: matches no node: {hint if names else 'no node has one'}"


# --- nodes to add --------------------------------------------------------------------------------


def _added(
    nodes: Sequence[NodeSpec], text: str, partitions: Sequence[str], taken: Iterable[str]
) -> list[NodeSpec]:
    shape, at, place = text.partition("@")
    wanted_nodes = parse_counts(shape, "add-nodes")
    joined = _joined(nodes, text, place if at else None, partitions, wanted_nodes)
    inside = [node for node in nodes if set(joined) & set(node.labels)] if joined else list(nodes)
    known = set(taken)
    made: list[NodeSpec] = []
    number = 1
    for wanted in wanted_nodes:
        like = _alike(inside or nodes, wanted)
        gpu_type = wanted.gpu_type or like.gpu_type
        while f"new{number}" in known:
            number += 1
        known.add(f"new{number}")
        features = _features([node for node in inside if node.gpu_type == gpu_type])
        labels = (*joined, *(one for one in features if one not in (*joined, *partitions)))
        made.append(
            NodeSpec(
                f"new{number}", wanted.gpus, gpu_type, like.cpus, like.mem_gib, like.path, labels
            )
        )
    return made


def _joined(
    nodes: Sequence[NodeSpec],
    text: str,
    place: str | None,
    partitions: Sequence[str],
    wanted: Iterable[NodeSpec],
) -> tuple[str, ...]:
    """The partitions that new nodes are in."""
    listed = ", ".join(sorted(partitions)[:MOST_NAMED])
    if place is None:
        if len(partitions) > 1:
            types = {node.gpu_type for node in wanted}
            alike = {name for node in nodes if node.gpu_type in types for name in node.labels}
            best = min(set(partitions) & alike or partitions)
            raise OptionError(
                f"add-nodes {text!r}: does not say in which partition they are: write "
                f"{text}@{best} (several joined by +); there are: {listed}"
            )
        return tuple(partitions)
    known = {label for node in nodes for label in node.labels} | set(partitions)
    named = tuple(dict.fromkeys(name.strip() for name in place.split("+")))
    for name in named:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            there = listed or ", ".join(sorted(known)[:MOST_NAMED]) or "none, leave it out"
            raise OptionError(
                f"add-nodes {text!r}: no partition {name!r}: {hint}there are: {there}"
            )
    return named


def _features(alike: Sequence[NodeSpec]) -> tuple[str, ...]:
    """Labels that all of these nodes have."""
    return tuple(
        label for label in (alike[0].labels if alike else ())
        if all(label in node.labels for node in alike)
    )  # fmt: skip


def _alike(nodes: Sequence[NodeSpec], wanted: NodeSpec) -> NodeSpec:
    """The most common node with as many GPUs, or the most common one with any, in proportion."""
    alike = [node for node in nodes if not wanted.gpu_type or node.gpu_type == wanted.gpu_type]
    alike = alike or list(nodes)
    same = [node for node in alike if node.gpus == wanted.gpus]
    some = same or [node for node in alike if node.gpus] or alike
    kinds = Counter((n.gpus, n.gpu_type, n.cpus, n.mem_gib, n.path) for n in some)
    gpus, gpu_type, cpus, mem_gib, path = kinds.most_common(1)[0][0]
    share = wanted.gpus / gpus if gpus else 1.0
    return NodeSpec("", wanted.gpus, gpu_type, cpus * share, mem_gib * share, path)
