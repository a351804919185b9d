"""How predictable is this log? Its jobs foreseen one by one, from nothing but what had ended.

A prediction is made when a job is submitted, from the jobs that had ended before that moment and
from what the job says of itself: nothing that comes later can change it. Jobs that were submitted
before any other had ended cannot be foreseen and are not judged.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import polars as pl

from rota.core.errors import InputError, OptionError
from rota.core.eventlog import Floats
from rota.core.words import counted
from rota.study.config import RunConfig
from rota.study.output import dump
from rota.study.predict.errors import (
    FACTORS,
    IrreducibleError,
    PredictorErrors,
    Repeats,
    curve_of,
    errors_of,
)
from rota.study.predict.history import (
    LEAST_S,
    JobHistory,
    kinds_of,
    read_job_history,
)
from rota.study.predict.predictors import Predictor, SaidByUser, make_predictors
from rota.study.predict.worth import PredictionWorth, measure_worth
from rota.study.replay.changes import level_names
from rota.study.replay.cluster import write_cluster
from rota.study.replay.replay import Asked, history_format
from rota.study.replay.tables import SIZES, size_class
from rota.traces.imported import Imported
from rota.traces.read import read_trace

TABLE, SUMMARY, REPORT = "predict.csv", "summary.json", "report.html"
FILES = (TABLE, SUMMARY, REPORT)
VERSION = 1
FEWEST = 2  # runs of which a mean is taken
FEW = 30  # jobs: fewer are judged, but nothing is said
NOT_YET = "submitted before any other had ended"
ALL, REPEATS = "all", "repeats"
ESTIMATE = SaidByUser.key
BOUND = "(nobody)"
MOST = 0.95  # of the jobs that a predictor must foresee to be the best
PREDICTABLE, PARTLY = 0.7, 0.4  # rank correlations

Told = Callable[[str, int, int], object]
"""Called with (what is being done, how much of it is done, of how much)."""


class PredictQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What a user wants to know of a log; with `cluster` or `nodes` also what it is worth.

    `named` is what the answer calls the log, if its file is a copy that goes: else the file.
    """

    log: str
    named: str = ""
    format: str | None = None
    limit: int | None = None
    last: int = 2
    cluster: str | None = None
    nodes: str | None = None

    def __post_init__(self) -> None:
        if self.last < FEWEST:
            raise OptionError(f"last={self.last}: the mean of at least {FEWEST} runs")


class PredictorGroup(msgspec.Struct, frozen=True):
    """Errors about some of the jobs: all, those that have repeats, those of a size."""

    group: str
    jobs: int
    errors: list[PredictorErrors]

    @property
    def told(self) -> str:
        """`all jobs`, `jobs that have repeats`, `jobs of 2-4 GPUs`."""
        if self.group in (ALL, REPEATS):
            return "all jobs" if self.group == ALL else "jobs that have repeats"
        if self.group.endswith("-"):
            return f"jobs of {self.group[:-1]} GPUs or more"
        return f"jobs of {self.group} GPU{'s' * (self.group != '1')}"

    def of(self, predictor: str) -> PredictorErrors | None:
        """Of one of them, if it foresaw any."""
        return next((one for one in self.errors if one.predictor == predictor), None)


class PredictAnswer(msgspec.Struct, kw_only=True):
    """How predictable the run times of a log are (`summary.json`)."""

    predict: int
    log: str
    jobs: int  # of the log
    judged: int
    left_out: dict[str, int]
    predictors: dict[str, str]  # how each of them foresees
    groups: list[PredictorGroup]  # the first: all jobs
    irreducible: IrreducibleError
    best: str | None  # the least median error; None: too few jobs
    best_order: str | None  # the largest rank correlation
    verdict: str
    sentences: list[str]  # of the verdict
    assumptions: list[str]
    warnings: list[str] = []
    worth: PredictionWorth | None = None
    factors: list[float] = []
    curves: dict[str, list[float]] = {}  # share of predictions within each of `factors`
    command: list[str] = []

    @property
    def whole(self) -> PredictorGroup:
        """Of all jobs."""
        return self.groups[0]


class ForeseenLog(msgspec.Struct):
    """The jobs that count, by submission, with every prediction (nan: none)."""

    history: JobHistory
    predicted: dict[str, Floats]
    judged: "np.ndarray[tuple[int], np.dtype[np.bool_]]"

    @property
    def run_s(self) -> Floats:
        """What came true."""
        return np.array([job.run_s for job in self.history.jobs])


def foresee_log(history: JobHistory, predictors: Sequence[Predictor]) -> ForeseenLog:
    """Let every predictor foresee every job, in the order in which all of it happened."""
    predicted = {one.key: np.full(len(history.jobs), math.nan) for one in predictors}
    judged = np.zeros(len(history.jobs), dtype=np.bool_)
    ended = False
    for number, (job, over) in enumerate(history.unfold()):
        for past in over:
            for one in predictors:
                one.learn(past)
        ended = ended or bool(over)
        judged[number] = ended
        for one in predictors:
            expected_s = one.predict(job)
            if expected_s is not None:
                predicted[one.key][number] = max(expected_s, LEAST_S)
    return ForeseenLog(history, predicted, judged)


def predict(
    question: PredictQuestion,
    folder: Path | None = None,
    told: Told | None = None,
    command: Sequence[str] = (),
) -> tuple[PredictAnswer, pl.DataFrame]:
    """Answer, and write all files but the page into an existing folder, if there is one.

    Returns:
        The answer, and a table with a row per job that counts: what it took, and what each
        predictor expected.
    """
    tell = told or (lambda *_: None)
    tell("reading", 0, 1)
    imported, text = _read(question)
    history = read_job_history(imported, question.named)
    predictors = make_predictors(last=question.last)
    tell("predicting", 0, 1)
    foreseen = foresee_log(history, predictors)
    answer = _judge(question, imported, foreseen, predictors)
    if question.cluster is not None or question.nodes is not None:
        answer.worth = _worth(question, imported, text, foreseen, answer, tell)
        answer.warnings += answer.worth.warnings
    answer.sentences = _sentences(answer)
    answer.verdict = " ".join(answer.sentences)
    answer.command = list(command)
    table = _table(imported, foreseen)
    if folder is not None:
        table.write_csv(folder / TABLE)
        (folder / SUMMARY).write_text(dump(msgspec.to_builtins(answer)), encoding="utf-8")
    return answer, table


def load_answer(folder: Path) -> PredictAnswer:
    """From a folder that `rota predict -o` made.

    Raises:
        InputError: It has none.
    """
    path = folder / SUMMARY
    try:
        answer = msgspec.json.decode(path.read_bytes(), type=PredictAnswer)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: is no answer of this Rota's `rota predict` ({error})") from error
    if answer.predict != VERSION:
        raise InputError(f"{path}: version {answer.predict}, this Rota reads {VERSION}")
    return answer


def _read(question: PredictQuestion) -> tuple[Imported, str | None]:
    if question.cluster is None and question.nodes is None:
        return read_trace(question.log, question.format, limit=question.limit), question.format
    text = history_format(
        Asked(
            log=question.log, format=question.format, nodes=question.nodes, cluster=question.cluster
        )
    )
    return read_trace(question.log, text, limit=question.limit), text


# --- the judgement --------------------------------------------------------------------------------


def _judge(
    question: PredictQuestion,
    imported: Imported,
    foreseen: ForeseenLog,
    predictors: Sequence[Predictor],
) -> PredictAnswer:
    history, judged, true = foreseen.history, foreseen.judged, foreseen.run_s
    repeats = Repeats(true, kinds_of(history.jobs))
    sizes = imported.jobs.select(size_class().alias("size"))["size"].to_list()
    size = np.array([sizes[job.number] for job in history.jobs])
    masks = {ALL: judged, REPEATS: judged & repeats.has_repeat}
    if len(np.unique(size[judged])) > 1:
        masks |= {name: judged & (size == name) for name in SIZES}
    told = {
        one.key: one.told for one in predictors if np.isfinite(foreseen.predicted[one.key]).any()
    }
    groups = [
        PredictorGroup(
            name,
            int(mask.sum()),
            [
                errors_of(key, foreseen.predicted[key][mask], true[mask])
                for key in told
                if np.isfinite(foreseen.predicted[key][mask]).any()
            ],
        )
        for name, mask in masks.items()
        if name == ALL or mask.any()
    ]
    left_out = dict(history.left_out)
    early = len(judged) - int(judged.sum())
    if early:
        left_out[NOT_YET] = early
    best, order = _best(groups[0])
    irreducible = repeats.measure()
    curves = {key: curve_of(foreseen.predicted[key][judged], true[judged]) for key in told}
    if irreducible.log_error is not None:
        curves[BOUND] = repeats.curve()
    return PredictAnswer(
        predict=VERSION, log=question.named or question.log,
        jobs=len(imported), judged=int(judged.sum()),
        left_out=left_out, predictors=told, groups=groups, irreducible=irreducible,
        best=best, best_order=order, verdict="", sentences=[],
        assumptions=_assumptions(history, told),
        warnings=list(imported.quality.told), factors=list(FACTORS), curves=curves,
    )  # fmt: skip


def _best(whole: PredictorGroup) -> tuple[str | None, str | None]:
    """The closest, and the one with the best order, of those that foresee (nearly) all jobs."""
    able = [one for one in whole.errors if one.jobs >= MOST * whole.jobs]
    if whole.jobs < FEW or not able:
        return None, None
    closest = min(able, key=lambda one: one.median_factor.value)
    ordered = [one for one in able if one.spearman is not None]
    order = max(ordered, key=lambda one: one.spearman.value, default=None)  # type: ignore[union-attr]  # known
    return closest.predictor, order.predictor if order else None


def _assumptions(history: JobHistory, told: dict[str, str]) -> list[str]:
    found = [
        "a prediction is made at the submission, from jobs that had ended before it",
        "jobs that failed or were cancelled count as they ran: they free their GPUs, too",
        f"below {LEAST_S:g} s all run times are alike",
        "the predictor that is called the best is so on this log, in hindsight",
    ]
    if not history.told_ends:
        found.insert(
            0, "the log does not tell when jobs ended: as if each had started when it was submitted"
        )
    if not any(job.user for job in history.jobs):
        found.append("the log names no users: all jobs are those of one")
    if not any(job.name or job.model for job in history.jobs):
        found.append("the log names neither jobs nor models: repeats are jobs of a user and a size")
    if ESTIMATE not in told:
        found.append("the log has no estimates of users")
    return found


def _sentences(answer: PredictAnswer) -> list[str]:
    """How close, in which order, what is possible, what it is worth."""
    if answer.best is None:
        few = counted(answer.judged, "job")
        return [f"Not known: {few} could be foreseen from earlier ones, {FEW} are needed."]
    whole = answer.whole
    best = whole.of(answer.best)
    said = whole.of(ESTIMATE)
    text = f"Half of the run times are predicted within {_factor(best)} ({answer.best})"
    if said is not None and answer.best != ESTIMATE:
        who = "" if said.jobs >= MOST * whole.jobs else f" of the {said.jobs:,} jobs that have one"
        text += f"; with the users' estimates{who} within {_factor(said)}"
    return [f"{text}.", _order(answer), _limits(answer), *_gain(answer)]


def _factor(errors: PredictorErrors | None) -> str:
    return "-" if errors is None else factor_text(errors.median_factor.value)


def factor_text(factor: float) -> str:
    """`1.80x`, `12.3x`, `1,234x`."""
    return f"{factor:,.{2 if factor < 10 else 1 if factor < 100 else 0}f}x"  # noqa: PLR2004 - digits


def _order(answer: PredictAnswer) -> str:
    best = answer.whole.of(answer.best_order or "")
    if best is None or best.spearman is None:
        return "Whether their order is predictable is not known: all are alike."
    rank = best.spearman.value
    how = "predictable" if rank >= PREDICTABLE else "partly predictable" if rank >= PARTLY else (
        "hardly predictable"
    )  # fmt: skip
    return f"Their order is {how}: Spearman {rank:.2f} ({best.predictor})."


def _limits(answer: PredictAnswer) -> str:
    bound = answer.irreducible
    if bound.median_factor is None:
        return f"What nobody could predict better is not known: {bound.why_not}."
    repeats = next((group for group in answer.groups if group.group == REPEATS), None)
    mine = repeats.of(answer.best or "") if repeats else None
    text = (
        f"Repeats (same user, name, model and GPUs; {bound.share:.0%} of the jobs) differ by "
        f"{factor_text(bound.median_factor.value)} in the middle"
    )
    if mine is None:
        return f"{text}: who knows no more than that cannot do better."
    if mine.median_factor.value < bound.median_factor.value:
        return f"{text}; {answer.best} is within {_factor(mine)} of them: it knows more than that."
    return (
        f"{text}: who knows no more than that cannot do better; {answer.best} is within "
        f"{_factor(mine)} of them."
    )


def _gain(answer: PredictAnswer) -> list[str]:
    worth = answer.worth
    if worth is None:
        return []
    first, mine, last = worth.rows[0], worth.rows[-2], worth.rows[-1]
    if not first.avg_wait_s:
        return ["Nobody waits on these machines: predictions are worth nothing there."]
    all_end = worth.ended == worth.jobs
    some = "" if all_end else f"; {worth.ended:,} of {worth.jobs:,} jobs end there"
    text = (
        f"On these machines (simulated under the policy qssf{some}) the mean JCT with predictions "
        f"of {worth.predictor} is {mine.ratio or 0:.3f} times that without any knowledge, with "
        f"perfect knowledge {last.ratio or 0:.3f} times"
    )
    if worth.gain is None:
        return [f"{text}: there is nothing to gain here."]
    if mine.low is None or mine.high is None:
        return [f"{text}: of so few jobs nobody can say whether that is noise."]
    if mine.low <= 1.0 <= mine.high:
        return [f"{text}: no gain of the predictions can be told from noise."]
    return [f"{text}: they gain {worth.gain:.0%} of what there is to gain."]


# --- tables and simulations -----------------------------------------------------------------------


def _table(imported: Imported, foreseen: ForeseenLog) -> pl.DataFrame:
    """A row per job that counts, in the order of submissions; no name of a user or a job."""
    jobs = foreseen.history.jobs
    ids = imported.jobs["job_id"].to_list()
    kinds = np.array(kinds_of(jobs), dtype=np.intp)
    columns: dict[str, object] = {
        "job_id": [ids[job.number] for job in jobs],
        "submit_s": [job.submit_s for job in jobs],
        "gpus": [job.gpus for job in jobs],
        "run_s": [job.run_s for job in jobs],
        "judged": foreseen.judged,
        "kind": kinds,
        "repeats": np.bincount(kinds)[kinds],
    }
    columns |= {
        f"{key}_s": pl.Series(values).fill_nan(None) for key, values in foreseen.predicted.items()
    }
    return pl.DataFrame(columns)


def _worth(
    question: PredictQuestion,
    imported: Imported,
    text: str | None,
    foreseen: ForeseenLog,
    answer: PredictAnswer,
    tell: Told,
) -> PredictionWorth:
    key = answer.best_order or answer.best
    if key is None:
        raise InputError(
            f"{answer.log}: {answer.judged} jobs could be foreseen, too few to say what that is "
            f"worth: leave --cluster and --nodes out, or give a longer log"
        )
    predicted_s = np.full(len(imported), math.nan)
    predicted_s[[job.number for job in foreseen.history.jobs]] = foreseen.predicted[key]
    with TemporaryDirectory(prefix="rota-predict-") as scratch:
        cluster = question.cluster
        if cluster is None:
            if not imported.cluster:
                raise InputError(f"{question.nodes}: lists no nodes: give --cluster instead")
            path = Path(scratch) / "cluster.yaml"
            write_cluster(imported.cluster, level_names(imported.cluster), {}, path)
            cluster = str(path)
        config = RunConfig(
            trace=question.log, cluster=cluster, policy="", format=text, limit=question.limit
        )
        found = measure_worth(
            config, imported.workload, key, predicted_s.tolist(),
            lambda done, total: tell("simulating", done, total),
        )  # fmt: skip
    return msgspec.structs.replace(found, cluster=question.cluster or str(question.nodes))
