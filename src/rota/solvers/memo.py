"""Answers to the last problems: the same jobs often come back.

Runs are resumed, policies compared, and the parts of a problem solved with and without one of them;
small problems are then found here. An answer is a function of its problem alone.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import fields

import numpy as np

from rota.solvers.share_problem import ShareProblem, ShareSolution

MOST = 1024  # answers
SMALL = 256  # rows: larger problems are rarely equal, and need memory

Key = tuple[object, ...]


class Memo:
    """Remembers the latest answers."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, ShareSolution] = OrderedDict()

    def answer(
        self, problem: ShareProblem, solve: Callable[[ShareProblem], ShareSolution]
    ) -> ShareSolution:
        """The answer; its arrays are not to be changed."""
        if len(problem.gain) > SMALL:
            return solve(problem)
        key = _key(problem)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _fixed(solve(problem))
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


def _key(problem: ShareProblem) -> Key:
    values = (getattr(problem, field.name) for field in fields(problem))
    return tuple(
        (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for value in values
    )


def _fixed(answer: ShareSolution) -> ShareSolution:
    for value in (answer.shares, answer.bids, answer.prices, answer.tight):
        value.flags.writeable = False
    return answer
