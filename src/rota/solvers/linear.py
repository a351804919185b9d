"""Linear and integer programmes from arrays, solved by HiGHS.

    minimise or maximise  cost . x
    such that             row_lower <= A x <= row_upper,  lower <= x <= upper,  some x whole numbers

`A` is sparse, by rows. A `Session` keeps the programme in the solver: after a change of bounds or
costs it starts from the last answer, which helps while the changes are few.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rota.core.errors import InfeasibleError, SolverError, SolverLimitError, UnboundedError, install

Array = NDArray[np.float64]
Indices = NDArray[np.int32]


@dataclass(frozen=True)
class Sparse:
    """A sparse matrix by rows: row i holds `values[starts[i]:starts[i+1]]`."""

    starts: Indices
    columns: Indices
    values: Array
    width: int

    @property
    def height(self) -> int:
        """How many rows."""
        return len(self.starts) - 1


def sparse(
    rows: NDArray[Any], columns: NDArray[Any], values: Array, shape: tuple[int, int]
) -> Sparse:
    """From the places of the entries that are not zero; entries of one place are added up."""
    height, width = shape
    place = rows.astype(np.int64) * width + columns
    order = np.argsort(place, kind="stable")
    place, first = np.unique(place[order], return_index=True)
    summed = np.add.reduceat(values[order], first) if len(first) else values[order]
    starts = np.zeros(height + 1, dtype=np.int32)
    np.cumsum(np.bincount(place // width, minlength=height), out=starts[1:])
    return Sparse(starts, (place % width).astype(np.int32), summed.astype(float), width)


@dataclass(frozen=True)
class LinearProgramme:
    """One programme; bounds may be infinite. `whole` marks the variables that must be integers."""

    cost: Array
    matrix: Sparse
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array
    maximise: bool = False
    whole: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class LinearSolution:
    """The best point. `duals` are the prices of the rows; integer programmes have none."""

    point: Array
    objective: float
    duals: Array


def solve_linear(
    programme: LinearProgramme,
    *,
    time_limit_s: float | None = None,
    absolute_gap: float | None = None,
    node_limit: int | None = None,
) -> LinearSolution:
    """The best point of one programme; with whole numbers, one at most `absolute_gap` from it.

    `node_limit` bounds the search for whole numbers the same on every machine.

    Raises:
        InfeasibleError: The constraints contradict each other.
        UnboundedError: The objective has no limit.
        SolverLimitError: The time, or the number of nodes, was not enough.
    """
    session = Session(
        programme, time_limit_s=time_limit_s, absolute_gap=absolute_gap, node_limit=node_limit
    )
    return session.solve()


class Session:
    """A programme that is solved again and again with other bounds or costs."""

    def __init__(
        self,
        programme: LinearProgramme,
        *,
        time_limit_s: float | None = None,
        absolute_gap: float | None = None,
        node_limit: int | None = None,
    ) -> None:
        self._highs = _highs()
        self._solver = self._highs.Highs()
        self._set("output_flag", value=False)
        self._set("threads", value=1)  # more cost more processor time than they save here
        if absolute_gap is not None:  # else a part of the objective counts, too
            self._set("mip_abs_gap", value=absolute_gap)
            self._set("mip_rel_gap", value=0.0)
        if node_limit is not None:
            self._set("mip_max_nodes", value=node_limit)
        self._time_limit_s = time_limit_s
        self._whole = programme.whole is not None and bool(programme.whole.any())
        self._solver.passModel(_model(self._highs, programme))

    def _set(self, option: str, *, value: object) -> None:
        self._solver.setOptionValue(option, value)

    def bound_rows(self, rows: Indices, lower: Array, upper: Array) -> None:
        """Change the bounds of some rows."""
        for row, low, high in zip(rows.tolist(), lower.tolist(), upper.tolist(), strict=True):
            self._solver.changeRowBounds(row, low, high)

    def set_cost(self, cost: Array) -> None:
        """Change all costs."""
        self._solver.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)

    def solve(self) -> LinearSolution:
        """The best point now; errors as of `solve_linear`."""
        if self._time_limit_s is not None:  # the clock of the solver runs over all its calls
            self._set("time_limit", value=self._solver.getRunTime() + self._time_limit_s)
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == self._highs.HighsModelStatus.kUnboundedOrInfeasible:
            self._set("presolve", value="off")  # which of both only the simplex method can tell
            self._solver.run()
            status = self._solver.getModelStatus()
        self._check(status)
        found = self._solver.getSolution()
        duals = [] if self._whole else found.row_dual
        objective = float(self._solver.getInfo().objective_function_value)
        return LinearSolution(np.array(found.col_value), objective, np.array(duals))

    def _check(self, status: Any) -> None:
        kinds = self._highs.HighsModelStatus
        if status == kinds.kOptimal:
            return
        if status == kinds.kModelEmpty:
            raise SolverError("the programme is empty: it has neither variables nor constraints")
        if status == kinds.kInfeasible:
            raise InfeasibleError("no point meets all constraints of the programme")
        if status == kinds.kUnbounded:
            raise UnboundedError("the objective of the programme has no limit: bound it")
        word = self._solver.modelStatusToString(status)
        if status in (kinds.kTimeLimit, kinds.kIterationLimit, kinds.kSolutionLimit):
            given = "" if self._time_limit_s is None else f" of {self._time_limit_s:g} s"
            raise SolverLimitError(
                f"no answer within the limit{given} ({word}): allow more or make it smaller"
            )
        raise SolverError(f"the solver gave up: {word}")


def _highs() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise SolverError(
            f"linear programmes need highspy ({error}): {install('solve')}"
        ) from error
    return highspy


def _model(highs: Any, programme: LinearProgramme) -> Any:
    matrix = programme.matrix
    model = highs.HighsLp()
    model.num_col_, model.num_row_ = matrix.width, matrix.height
    model.sense_ = highs.ObjSense.kMaximize if programme.maximise else highs.ObjSense.kMinimize
    model.col_cost_ = programme.cost
    model.col_lower_, model.col_upper_ = programme.lower, programme.upper
    model.row_lower_, model.row_upper_ = programme.row_lower, programme.row_upper
    model.a_matrix_.format_ = highs.MatrixFormat.kRowwise
    model.a_matrix_.start_ = matrix.starts
    model.a_matrix_.index_ = matrix.columns
    model.a_matrix_.value_ = matrix.values
    if programme.whole is not None and programme.whole.any():
        kinds = highs.HighsVarType
        model.integrality_ = [
            kinds.kInteger if whole else kinds.kContinuous for whole in programme.whole
        ]
    return model


def equal_rows(*columns: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First rows of the groups of equal rows, and the number of the group of each row."""
    parts = [part[:, None] if part.ndim == 1 else part for part in columns]
    table = np.ascontiguousarray(np.hstack(parts)) + 0.0  # makes -0 a plain 0
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first.astype(np.intp), group.astype(np.intp)
