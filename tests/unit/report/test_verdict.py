"""What the report says first: true, whatever the numbers are."""

import msgspec
import pytest

from rota.metrics.vocabulary import BY_KEY
from rota.report.source import ReportSource
from rota.report.verdict import sentences, strip, tiles, told_ratio
from rota.study.compare_file import Measured, PolicyComparison, PolicyRow
from rota.study.notes import NOBODY_WAITED

OF_USE = (1.0, 0.9, 1.1, "unclear")
KEYS = ("avg_jct_s", "gpu_utilisation")


def comparison(**policies):
    """Return a comparison; each policy has (mean, ratio, low, high, verdict) of its mean JCT."""
    rows = [
        PolicyRow(
            policy=name,
            knowledge="nothing",
            measures={
                "avg_jct_s": Measured(*found),
                "gpu_utilisation": Measured(0.5, *OF_USE[: len(found) - 1]),
            },
        )
        for name, found in policies.items()
    ]
    return PolicyComparison(
        trace="jobs.csv", cluster="4x4", baseline=rows[0].policy, seeds=[0, 1], windows=[],
        level=0.95, method="", measures=[BY_KEY[key] for key in KEYS], rows=rows, assumptions=[],
        runs=[], notes=[],
    )  # fmt: skip


def said(found):
    return sentences(ReportSource(found, [], found.notes))


def shown(found):
    return tiles(ReportSource(found, [], found.notes))


BASE = (100.0,)
BETTER = (40.0, 0.4, 0.3, 0.5, "better")
UNCLEAR = (95.0, 0.95, 0.8, 1.1, "unclear")
WORSE = (150.0, 1.5, 1.2, 1.9, "worse")


def test_the_best_of_the_proven_is_named_with_its_interval():
    first, *more = said(comparison(fifo=BASE, las=BETTER, srtf=UNCLEAR, bad=WORSE))
    assert first == (
        "las is better than fifo: its mean JCT is 60% lower (ratio 0.400, 95 % interval 0.300 to "
        "0.500)."
    )
    assert more == ["No difference to fifo can be told for srtf.", "bad is worse than fifo."]
    jct, use = shown(comparison(fifo=BASE, las=BETTER))
    assert (jct.value, jct.kind) == ("40 s", "better")
    assert jct.note == "las: 0.400 [0.300, 0.500] times fifo 1m 40s"
    assert (use.kind, use.note) == ("", "fifo: nobody is proven to be better")


def test_a_better_mean_that_proves_nothing_is_no_winner():
    (first,) = said(comparison(fifo=BASE, las=UNCLEAR))
    assert first == (
        "No difference in mean JCT can be told between fifo and las (ratio 0.950, 95 % interval "
        "0.800 to 1.100)."
    )
    assert all(tile.kind == "" for tile in shown(comparison(fifo=BASE, las=UNCLEAR)))


def test_nobody_may_be_better_than_the_baseline():
    found = comparison(fifo=BASE, a=WORSE, b=WORSE)
    assert said(found) == ["fifo is better than all others in mean JCT."]
    assert shown(found)[0].note == "fifo: all others are worse"
    assert said(comparison(fifo=BASE, a=WORSE, b=UNCLEAR))[1] == "a is worse than fifo."


def test_those_that_are_better_are_not_ranked():
    _, more = said(comparison(fifo=BASE, a=BETTER, b=(50.0, 0.5, 0.4, 0.6, "better")))
    assert more.startswith("b is better than fifo, too.")
    assert "not tested" in more


def test_one_run_proves_nothing():
    first, more = said(comparison(fifo=BASE, las=(40.0, 0.4, 0.3, 0.5)))
    assert first == "In this one run las has the lowest mean JCT: 40 s, against 1m 40s of fifo."
    assert "proves nothing" in more
    assert (
        said(comparison(fifo=BASE, las=(100.0, 1.0, 1.0, 1.0)))[0]
        == "In this one run all policies have the same mean JCT."
    )


def test_where_nobody_waits_there_is_nothing_to_compare():
    found = comparison(fifo=BASE, las=BETTER)
    found = msgspec.structs.replace(found, notes=[f"{NOBODY_WAITED}: raise the load"])
    assert said(found) == ["Nobody waited under any policy: there is nothing to compare."]


def test_many_names_are_counted():
    found = comparison(fifo=BASE, **{f"p{i}": UNCLEAR for i in range(7)})
    assert "between fifo and p0, p1, p2, p3 and 3 others." in said(found)[0]


@pytest.mark.parametrize("ratio", [None, 0.0, float("inf")])
def test_what_has_no_place_on_a_scale_of_ratios_is_not_drawn(ratio):
    assert strip(Measured(1.0, ratio), (-1.0, 1.0)) == ""


def test_intervals_are_drawn_where_they_are():
    made = strip(Measured(1.0, 1.0, 0.5, 2.0, "unclear"), (-0.693147, 0.693147))
    assert 'class="strip unclear"' in made
    assert 'class="one" style="left:50.0%"' in made
    assert "left:0.0%;width:100.0%" in made
    assert told_ratio(Measured(1.0, 1.0, 1.0, 1.0)) == "1.000"
