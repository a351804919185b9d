"""Tables of throughputs: steps per second by job type, number of GPUs and GPU type.

The layout is that of Gavel's JSON: `{gpu_type: {"('model', gpus)": {"null": alone, "('other',
gpus)": [own, the other's], ..}}}`. `null` is the job alone on its GPUs, all other keys are partners
on the same GPUs. A GPU type that ends in `_unconsolidated` holds the values for jobs whose GPUs are
on several nodes. GPU types are whatever the file names.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from rota.core.errors import OptionError

Kind = tuple[str, int]
"""Model and number of GPUs."""
ByType = dict[str, float]

_SCATTERED = "_unconsolidated"
_ALONE = "null"


class Throughputs(msgspec.Struct, frozen=True):
    """Steps per second by kind of job and GPU type.

    `scattered`: on GPUs of several nodes. `pairs`: of the first kind while it shares its GPUs with
    the second one.
    """

    alone: dict[Kind, ByType]
    scattered: dict[Kind, ByType]
    pairs: dict[tuple[Kind, Kind], ByType]

    @property
    def gpu_types(self) -> list[str]:
        """The types in the order of the file."""
        return list(dict.fromkeys(kind for speeds in self.alone.values() for kind in speeds))


def parse_throughputs(data: bytes) -> Throughputs:
    """Read the JSON text.

    Raises:
        ValueError: It is not in the layout.
    """
    table = Throughputs({}, {}, {})
    try:
        raw = msgspec.json.decode(data, type=dict[str, dict[str, dict[str, Any]]])
        for gpu_type, jobs in raw.items():
            into = table.scattered if gpu_type.endswith(_SCATTERED) else table.alone
            for text, rates in jobs.items():
                kind = parse_kind(text)
                into.setdefault(kind, {})[gpu_type.removesuffix(_SCATTERED)] = float(rates[_ALONE])
                if into is table.alone:
                    _read_pairs(table, gpu_type, kind, rates)
    except (msgspec.DecodeError, KeyError, TypeError, IndexError) as error:
        raise ValueError(str(error)) from error
    return table


def _read_pairs(table: Throughputs, gpu_type: str, kind: Kind, rates: Mapping[str, Any]) -> None:
    for text, speeds in rates.items():
        if text != _ALONE:
            own, others = speeds
            other = parse_kind(text)
            table.pairs.setdefault((kind, other), {})[gpu_type] = float(own)
            table.pairs.setdefault((other, kind), {}).setdefault(gpu_type, float(others))


def parse_kind(text: str) -> Kind:
    """`('ResNet-18 (batch size 16)', 1)` as its two parts."""
    name, comma, count = text.strip().removeprefix("(").removesuffix(")").rpartition(",")
    if not comma:
        raise ValueError(f"{text!r} is not (job type, GPUs)")
    return name.strip().strip("'\""), int(count)


def load_throughputs(path: str) -> Throughputs:
    """The table in a file, for an option of a rate model.

    Raises:
        OptionError: There is no such file, or it holds something else.
    """
    try:
        changed = Path(path).stat().st_mtime_ns
        return _load(path, changed)
    except OSError as problem:
        raise OptionError(
            f"throughputs {path}: cannot be read ({problem.strerror}): check the path"
        ) from problem
    except ValueError as problem:
        raise OptionError(
            f"throughputs {path}: is not a table of throughputs ({problem}): "
            f"give Gavel's JSON, {{type: {{job: ...}}}}"
        ) from problem


@lru_cache(maxsize=4)
def _load(path: str, changed: int) -> Throughputs:  # noqa: ARG001 - a file may be written anew
    return parse_throughputs(Path(path).read_bytes())
