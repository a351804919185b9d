"""The recipe fgd-alloc: pod lists of which only the order of placements is known."""

import polars as pl
import pytest

from rota.reproduce.fgd.recipe import POLICIES, RECIPE, WORKLOADS, _shapes
from rota.reproduce.recipe import CheckVerdict, RecipeRun, RecipeSetting, Scale


@pytest.fixture
def setting(tmp_path):
    """Return the paper's scale with a folder of two pod lists, one of them published."""
    (tmp_path / "openb").mkdir()
    for name in ("openb_pod_list_default.csv", "openb_pod_list_new.csv", "openb_node_list.csv"):
        (tmp_path / "openb" / name).touch()
    return RecipeSetting(Scale.PAPER, tmp_path, tmp_path)


def outcomes(**used):
    """Return an outcome per placement that used so many per cent of the GPUs."""
    return {
        f"new-{name.replace('_', '-')}-seed42": RecipeRun(
            None, pl.DataFrame(), {}, [(99, 1.0, 1.0, 1.0), (100, percent, 1.0, 1.0)]
        )
        for name, percent in used.items()
    }


def test_lists_without_published_numbers_are_run_once(setting):
    runs = RECIPE.runs(setting)
    new = [label for label in runs if label.startswith("new-")]
    assert new == [f"new-{placement}-seed42" for placement in POLICIES]
    assert len(runs) == len(new) + 10 * len(WORKLOADS) * len(POLICIES)
    small = RECIPE.runs(RecipeSetting(Scale.SMALL, setting.folder, setting.data))
    assert not [label for label in small if label.startswith("new-")]


@pytest.mark.parametrize(
    ("fgd", "random", "verdict"),
    [
        (95.0, 80.0, CheckVerdict.AGREES),
        (91.0, 80.0, CheckVerdict.FAILS),
        (95.0, 96.0, CheckVerdict.FAILS),
    ],
)
def test_fgd_must_be_best(setting, fgd, random, verdict):
    middle = dict.fromkeys(("dot_product", "gpu_clustering", "gpu_packing", "best_fit"), 92.0)
    (check,) = _shapes(setting, outcomes(fgd=fgd, random=random, **middle))
    assert check.verdict == verdict
    assert check.quantity == "new: GPUs in use at 100 % arrived (%)"
    assert f"fgd {fgd:.2f}" in check.ours
