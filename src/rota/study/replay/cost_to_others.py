"""What a guarantee, or more GPUs, for some means for the others: the model with and without it."""

from collections.abc import Iterator

import polars as pl

from rota.core.words import duration
from rota.study.fidelity import FAR
from rota.study.replay.replay import Answer
from rota.study.replay.tables import MODEL, WHAT_IF, Schedule, attributes


def cost_to_others(answer: Answer) -> Iterator[str]:
    """A sentence for each tenant or queue that was given something, if it was."""
    changes = answer.asked.changes
    given = {name: f"a guarantee of {gpus:g} GPUs for {name}" for name, gpus in changes.guarantees}
    given |= {name: f"{gpus:g} GPUs more for {name}" for name, gpus in changes.more}
    model = next((one for one in answer.schedules if one.role == MODEL), None)
    changed = next((one for one in answer.schedules if one.role == WHAT_IF), None)
    if not given or model is None or changed is None:
        return
    groups = attributes(answer.imported).select("job", "tenant", "partition")
    before, after = (_waits(one, groups) for one in (model, changed))
    names = list(given)
    theirs = pl.col("tenant").is_in(names) | pl.col("partition").is_in(names)
    for name, what in given.items():
        mine = (pl.col("tenant") == name) | (pl.col("partition") == name)
        own = _change(before, after, mine)
        others = _change(before, after, ~theirs)
        doubt = ", if the model is trusted, which is far from the log" * (
            answer.model.verdict == FAR
        )
        yield (
            f"{what} changes the mean wait of {name} from {own[0]} to {own[1]} and that of all "
            f"others from {others[0]} to {others[1]} ({others[2]} hours of waiting in all){doubt}"
        )


def _waits(schedule: Schedule, groups: pl.DataFrame) -> pl.DataFrame:
    numbers = schedule.numbers
    jobs = pl.Series("job", numbers if numbers is not None else range(schedule.jobs.height))
    return pl.DataFrame({"job": jobs.cast(pl.Int64), "wait_s": schedule.jobs["wait_s"]}).join(
        groups, on="job"
    )


def _change(before: pl.DataFrame, after: pl.DataFrame, who: pl.Expr) -> tuple[str, str, str]:
    first, second = (table.filter(who)["wait_s"].drop_nulls() for table in (before, after))
    means = [table.mean() if len(table) else None for table in (first, second)]
    told = [duration(mean) if isinstance(mean, float) else "-" for mean in means]
    return told[0], told[1], f"{(float(second.sum()) - float(first.sum())) / 3600:+,.1f}"
