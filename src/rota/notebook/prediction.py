"""How predictable a log is, from Python."""

from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from rota.notebook.frames import Jobs, as_pandas, jobs_file
from rota.study.folder import OutputFolder
from rota.study.predict.predict import FILES, PredictAnswer, PredictQuestion
from rota.study.predict.predict import predict as answer_to


class Predictability:
    """What was found of a log.

    Attributes:
        answer: Every number, as of `summary.json`.
    """

    def __init__(self, answer: PredictAnswer, jobs: pl.DataFrame) -> None:
        self.answer = answer
        self._jobs = jobs

    @property
    def verdict(self) -> str:
        """The answer in a few sentences."""
        return self.answer.verdict

    @property
    def errors(self) -> pl.DataFrame:
        """A row per group of jobs and predictor: how wrong it is."""
        return pl.DataFrame(
            [
                {
                    "group": group.group,
                    "predictor": one.predictor,
                    "jobs": one.jobs,
                    "median_factor": one.median_factor.value,
                    "mean_factor": one.mean_factor.value,
                    "log_error": one.log_error.value,
                    "bias_factor": one.bias_factor.value,
                    "within_2": one.within_2.value,
                    "spearman": None if one.spearman is None else one.spearman.value,
                }
                for group in self.answer.groups
                for one in group.errors
            ],
            infer_schema_length=None,
        )

    def to_polars(self) -> pl.DataFrame:
        """A row per job: what it took, and what each predictor expected."""
        return self._jobs

    def to_pandas(self) -> Any:
        """The same for pandas (needs pandas and pyarrow)."""
        return as_pandas(self.to_polars())

    def __repr__(self) -> str:
        return f"<Predictability of {self.answer.judged:,} jobs: {self.verdict}>"

    def _repr_html_(self) -> str:
        whole = self.errors.filter(group=self.answer.whole.group).drop("group")
        return f"<p>{escape(self.verdict)}</p>{whole._repr_html_()}"


def predict(
    log: Jobs,
    *,
    output: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> Predictability:
    """Say how predictable the run times of a log are, as `rota predict` does.

    Args:
        log: A file, or a table of polars or pandas with the columns of the csv format.
        output: A folder to write, as `rota predict -o` does; by default nothing is written.
        force: Replace Rota's files in a folder that is not empty.
        options: `format`, `limit`, `last`, `cluster`, `nodes`.
    """
    question = PredictQuestion(log="", **options)  # before anything is written
    if output is None:
        with jobs_file(log, None, question.format) as file:
            return Predictability(*answer_to(PredictQuestion(log=str(file), **options)))
    from rota.report.predict import predict_page
    from rota.report.study_pages import write_study_page

    with (
        OutputFolder(Path(output), force=force, own=FILES) as folder,
        jobs_file(log, Path(output), question.format) as file,
    ):
        answer, jobs = answer_to(PredictQuestion(log=str(file), **options), folder.path)
        write_study_page(predict_page(answer), folder.path)
    return Predictability(answer, jobs)
