"""What a folder holds."""

from pathlib import Path

from rota.core.errors import InputError
from rota.notebook.comparison import Comparison
from rota.notebook.result import Result
from rota.study.comparison import COMPARE
from rota.study.output import SUMMARY


def load(folder: str | Path) -> Result | Comparison:
    """The run or the comparison in a folder that `rota simulate` or `rota compare` made."""
    place = Path(folder)
    if (place / COMPARE).exists():
        return Comparison.load(place)
    if (place / SUMMARY).exists():
        return Result.load(place)
    raise InputError(
        f"{place}: has neither {COMPARE} nor {SUMMARY}: name a folder that `rota compare` or "
        f"`rota simulate` made"
    )
