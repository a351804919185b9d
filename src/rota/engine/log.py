"""The append-only event log: one flat table, the only output of a run.

Rows go into one flat list of numbers (the cheapest append there is) and are folded into compact
arrays in chunks, so that memory stays small. Texts are sparse and kept apart by row number.
"""

from array import array
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

from rota.core.allocation import Allocation
from rota.core.jobs import Shape
from rota.core.log import LABELS, SCHEMA_VERSION, WIDTH, Record, Row
from rota.core.topology import Topology

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

CHUNK = WIDTH * 2_000  # so few that they are still in the caches when they are folded


class Log:
    """Rows of (time_s, event, job, ref, other, value) and, for some, a text."""

    def __init__(self) -> None:
        self.rows: list[float] = []
        self._taken = 0  # rows that `take` has handed over
        self.kept: array[float] | None = None  # what was taken lately, for who checks the log
        self._packed = array("d")
        self.texts: dict[int, str] = {}
        self.names: list[str] = []  # texts of SUBMIT rows, in their order
        self._allocations: dict[Allocation, int] = {}
        self.quick: dict[int, int] = {}  # by identity: most allocations are used again and again
        self.tenants: dict[str, int] = {}
        self._vertices = 0

    def __len__(self) -> int:
        return self._taken + (len(self._packed) + len(self.rows)) // WIDTH

    def row(
        self, time_s: float, event: int, job: int = -1, ref: int = -1, other: int = -1,
        value: float = 0.0,
    ) -> None:  # fmt: skip
        """Append a row."""
        self.rows += (time_s, event, job, ref, other, value)

    def text(self, text: str) -> None:
        """Attach a text to the last row."""
        self.texts[len(self) - 1] = text

    def pack(self) -> None:
        """Fold the rows so far into a compact array."""
        rows = self.rows
        # not `fromlist`, which parses every number as if it were the arguments of a call
        self._packed.frombytes(pack(f"{len(rows)}d", *rows))
        rows.clear()

    def take(self) -> list[Row]:
        """Hand over the rows so far: somebody else keeps them (a daemon's store)."""
        self.pack()
        table = self._packed
        names = iter(self.names)
        out = []
        for number, at in enumerate(range(0, len(table), WIDTH), self._taken):
            time_s, event, job, ref, other, value = table[at : at + WIDTH]
            text = next(names) if event == Record.SUBMIT else self.texts.get(number)
            out.append(Row(time_s, int(event), int(job), int(ref), int(other), value, text))
        self._taken += len(out)
        if self.kept is not None:
            self.kept += table
        self._packed = array("d")
        self.names.clear()
        self.texts.clear()
        return out

    def for_checks(self) -> tuple["array[float]", "array[float]", int]:
        """Numbers that were taken since the last call, packed ones, and how many came before."""
        kept = self.kept if self.kept is not None else array("d")
        self.kept = array("d")
        return kept, self._packed, self._taken * WIDTH - len(kept)

    # --- definitions: numbers that later rows refer to ------------------------------------------

    def topology(self, topology: Topology, time_s: float = 0.0) -> None:
        """Define every vertex above the devices that is not defined yet."""
        for vertex in topology.vertices[self._vertices :]:
            if vertex.level != "gpu":
                self.row(time_s, Record.VERTEX, -1, vertex.id, vertex.parent, vertex.gpus)
                self.text(f"{vertex.level}:{vertex.name}")
        self._vertices = len(topology.vertices)

    def shape(self, time_s: float, shape: Shape) -> None:
        """Define a request shape."""
        self.row(time_s, Record.SHAPE, -1, shape.number, -1, shape.gpus)
        self.text(shape.describe())

    def tenant(self, time_s: float, name: str) -> int:
        """The number of a tenant, defined when first seen."""
        number = self.tenants.get(name)
        if number is None:
            number = self.tenants[name] = len(self.tenants)
            self.row(time_s, Record.TENANT, -1, number)
            self.text(name)
        return number

    def allocation(self, time_s: float, allocation: Allocation) -> int:
        """The number of an allocation, defined when first seen."""
        number = self.quick.get(id(allocation))
        if number is None:
            number = self._allocations.get(allocation)
            if number is None:
                number = self._number(allocation)
                for vertex, amount in allocation.slices:
                    self.row(time_s, Record.ALLOCATION, -1, number, vertex, amount)
                for vertex, kind, amount in allocation.extra:
                    self.row(time_s, Record.EXTRA, -1, number, vertex, amount)
                    self.text(kind)
        return number

    def _number(self, allocation: Allocation) -> int:
        number = self._allocations[allocation] = len(self._allocations)
        self.quick[id(allocation)] = number  # safe: the table above keeps the object alive
        return number

    # --- the finished table ---------------------------------------------------------------------

    def frame(self) -> "pl.DataFrame":
        """The rows that were not taken, as a table."""
        import numpy as np

        self.pack()
        table = np.frombuffer(self._packed, dtype=np.float64).reshape(-1, WIDTH)
        texts: Any = np.full(len(table), None, dtype=object)
        if self.texts:
            texts[np.array(list(self.texts)) - self._taken] = list(self.texts.values())
        texts[np.flatnonzero(table[:, 1] == Record.SUBMIT)] = self.names
        return as_frame(table, texts)

    def since(self, first: int) -> "pl.DataFrame":
        """The rows from a number on, as a table; none of them may have been taken."""
        import numpy as np

        self.pack()
        table = np.frombuffer(self._packed, dtype=np.float64).reshape(-1, WIDTH)[first:].copy()
        texts: Any = np.full(len(table), None, dtype=object)
        for number in reversed(self.texts):
            if number < first:
                break
            texts[number - first] = self.texts[number]
        named = np.flatnonzero(table[:, 1] == Record.SUBMIT)
        texts[named] = self.names[len(self.names) - len(named) :]
        return as_frame(table, texts.tolist())  # of an array of None polars makes no texts

    def release(self) -> "pl.DataFrame":
        """The same, once: the log lets go of its rows, which would need as much memory again."""
        frame = self.frame()
        self._taken += frame.height
        self._packed = array("d")
        self.names.clear()
        self.texts.clear()
        return frame

    def write(self, path: Path) -> "pl.DataFrame":
        """Write the log as Parquet and return the table."""
        frame = self.frame()
        write_frame(frame, path)
        return frame

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All rows and definitions as plain data."""
        self.pack()
        return {
            "taken": self._taken,
            "vertices": self._vertices,
            "rows": self._packed.tobytes(),
            "texts": list(self.texts.items()),
            "names": self.names,
            "allocations": [
                (allocation.slices, allocation.extra, allocation.config)
                for allocation in self._allocations
            ],
            "tenants": list(self.tenants.items()),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take the state of `snapshot` up again."""
        self.rows.clear()
        self._taken = state["taken"]
        self._vertices = state["vertices"]
        self._packed = array("d")
        self._packed.frombytes(state["rows"])
        self.texts = dict(state["texts"])
        self.names = list(state["names"])
        self.tenants = dict(state["tenants"])
        self._allocations, self.quick = {}, {}
        for slices, extra, config in state["allocations"]:
            allocation = Allocation(
                [tuple(piece) for piece in slices], [tuple(piece) for piece in extra], config
            )
            self._number(allocation)

    def known_allocations(self) -> list[Allocation]:
        """Every allocation that was logged, by its number."""
        return list(self._allocations)


def as_frame(table: "np.ndarray[Any, np.dtype[np.float64]]", texts: Any) -> "pl.DataFrame":
    """Rows of numbers and their texts, with the types of the schema."""
    import numpy as np
    import polars as pl

    kinds = pl.Series(LABELS, dtype=pl.Enum(LABELS))
    return pl.DataFrame(
        {
            "time_s": table[:, 0].copy(),
            "event": kinds.gather(table[:, 1].astype(np.uint32)),
            "job": table[:, 2].astype(np.int32),
            "ref": table[:, 3].astype(np.int32),
            "other": table[:, 4].astype(np.int32),
            "value": table[:, 5].copy(),
            "text": pl.Series(texts, dtype=pl.String),
        }
    )


def write_frame(frame: "pl.DataFrame", path: Path) -> None:
    """Write a log as Parquet (to a temporary file first)."""
    part = path.with_name(path.name + ".part")
    frame.write_parquet(part, compression="zstd", metadata={"rota_schema": str(SCHEMA_VERSION)})
    part.replace(path)
