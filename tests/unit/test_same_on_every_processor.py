"""No result depends on the kernels that a linear algebra library chooses for a processor."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rota
from rota.core.products import solved

SOURCES = Path(rota.__file__).parent
LIBRARY = {"dot", "vdot", "inner", "matmul", "tensordot", "vecdot", "matvec", "polyfit", "lstsq"}
FITTED = """
import random
import numpy as np
from rota.models.curves import nonnegative
from rota.models.goodput import PerfParams, accumulate_s, fit_steps, step_s
from rota.models.profiles import StepTimes
from rota.core.products import dot, mixed, solved

rng = random.Random(3)
for _ in range(6):
    theta = PerfParams(*(rng.uniform(0.001, 0.2) for _ in range(6)), rng.uniform(1, 3))
    shapes = [(1, 1, 8), (1, 2, 16), (1, 4, 32), (2, 8, 16), (3, 9, 64), (4, 16, 32)]
    points = tuple(
        (n, g, b, accumulate_s(theta, b) * rng.uniform(0.9, 1.1),
         step_s(theta, n, g, b) * rng.uniform(1.1, 1.3))
        for n, g, b in shapes
    )
    print(fit_steps(points), fit_steps(points, warm=True))
numbers = np.random.default_rng(5)
for _ in range(20):
    matrix, right = numbers.random((9, 5)), numbers.random(9)
    print(nonnegative(matrix, right).tolist(), solved(matrix[:5], right[:5, None]).tolist())
    print(dot(matrix[:, 0], right), mixed(right, matrix).tolist())
placed = {
    digits: np.array([[b, *numbers.random(2)] for b in (8.0, 16.0, 64.0)])
    for digits in ("1", "2", "4", "11", "22", "44", "444")
}
times = StepTimes("made up", placed, np.zeros((0, 5)))
for place in ((1, 2), (3, 1), (4, 2), (4, 3), (3,), (1, 3, 4)):
    for batch in (9, 13, 31, 50, 63):
        try:
            print(times.times(place, batch))
        except Exception as error:
            print(type(error).__name__)
"""


def printed(kernels):
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    environ |= {"OPENBLAS_CORETYPE": kernels} if kernels else {}
    return subprocess.run(
        [sys.executable, "-c", FITTED], env=environ, capture_output=True, text=True, check=True
    ).stdout


def test_fits_and_products_are_the_same_with_any_kernels():
    """Of the processor itself, and of the oldest and a newer family (x86; else all are one)."""
    pytest.importorskip("scipy")
    own = printed(None)
    assert len(own.splitlines()) == 6 + 40 + 30
    assert printed("Prescott") == own
    assert printed("Haswell") == own


def test_nothing_asks_a_linear_algebra_library():
    """`rota.core.products` has what is needed; exceptions of `numpy.linalg` are none of it."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            product = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
            named = isinstance(node, ast.Attribute) and (
                (node.attr in LIBRARY and ast.unparse(node.value) == "np")
                or (ast.unparse(node.value) == "np.linalg" and node.attr != "LinAlgError")
                or node.attr.startswith("fmin_l_bfgs")
            )
            if product or named:
                found.append(f"{path.relative_to(SOURCES)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_one_system_is_solved_as_a_stack_of_them_is():
    rng = np.random.default_rng(2)
    for size in (1, 2, 5):
        stack, right = rng.normal(size=(20, size, size)), rng.normal(size=(20, size, 2))
        together = solved(stack, right)
        for matrix, wanted, found in zip(stack, right, together, strict=True):
            assert (solved(matrix, wanted) == found).all()
            assert found == pytest.approx(np.linalg.solve(matrix, wanted), rel=1e-6)
    with pytest.raises(np.linalg.LinAlgError):
        solved(np.zeros((2, 2)), np.ones((2, 1)))
    with pytest.raises(np.linalg.LinAlgError):
        solved(np.zeros((3, 2, 2)), np.ones((3, 2, 1)))
