"""How many GPUs a job held on each of its nodes, as far as Slurm's accounting tells.

For a whole job it tells only the sum. The share of a node is known

- if there is one node only;
- if the job asked for GPUs per node (`--gres=gpu:4`, `--gpus-per-node=4` in the submit line, or the
  field ReqGRES of older versions), and the sum agrees;
- if it held all GPUs of its nodes (their sizes are known from `nodes=FILE`);
- from its batch step (`123.batch`), which holds what the job has on its first node: of two nodes
  the other has the rest, and if the first has just the average, all are taken to have it.

Everything else stays open. A replay then guesses: evenly if that is possible, else the first nodes
full and at least one GPU on each, as Slurm deals them out; and it says for how many jobs.
"""

import re
from collections.abc import Mapping, Sequence

_EACH = re.compile(
    r"--(?:gres[=\s]+(?:\S*,)?gpu(?::[a-z]\w*)?(?::(?P<gres>\d+))?(?=[,\s]|$)"
    r"|gpus-per-node[=\s]+(?:[a-z]\w*:)?(?P<each>\d+)(?=\s|$))",
    re.IGNORECASE,
)


def asked_each(line: str) -> float | None:
    """GPUs on every node, from how a job was submitted; None: it does not say."""
    found = _EACH.search(line)
    if found is None:
        return None
    return float((found["gres"] or found["each"] or "1")[:6])


def shares(
    gpus: float,
    nodes: Sequence[str],
    *,
    each: float | None = None,
    batch: tuple[str, float] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> tuple[float, ...]:
    """GPUs on each node; empty: it is not known.

    Args:
        gpus: Of the whole job.
        nodes: Where it ran.
        each: What it asked for on every node.
        batch: A node, and what the job held there.
        sizes: GPUs of nodes.
    """
    count = len(nodes)
    if count == 1 or not gpus:
        return (gpus,) * count
    if each is not None and each * count == gpus:
        return (each,) * count
    full = tuple(float((sizes or {}).get(node, 0)) for node in nodes)
    if sum(full) == gpus:
        return full
    if batch is None or batch[0] not in nodes:
        return ()
    return _from_batch(gpus, nodes, batch)


def _from_batch(gpus: float, nodes: Sequence[str], batch: tuple[str, float]) -> tuple[float, ...]:
    node, here = batch
    count = len(nodes)
    rest = (gpus - here) / (count - 1)
    if not 0 <= here <= gpus or (count > 2 and rest != here):  # noqa: PLR2004 - the other of two
        return ()
    return tuple(here if name == node else rest for name in nodes)
