"""What msgspec refuses is told with the key, the value and the remedy."""

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from rota.core.validation import refused_value


class Part(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, Meta(gt=0, lt=9)] = 1
    share: Annotated[float, Meta(multiple_of=0.5)] | None = None
    name: Annotated[str, Meta(pattern="^[a-z]+$", max_length=4)] = "a"
    token: Annotated[int, Meta(ge=1)] = 1


class Whole(msgspec.Struct):
    parts: Annotated[list[Part], Meta(min_length=1)]
    by_name: dict[str, Part] = {}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"parts": [{}, {"size": 0}]}, "parts[1].size is 0: write a whole number of at least 1"),
        ({"parts": [{"size": 9}]}, "parts[0].size is 9: write a whole number of at most 8"),
        ({"parts": [{"size": "x"}]}, "parts[0].size is 'x': write a whole number"),
        (
            {"parts": [{"share": 0.3}]},
            "parts[0].share is 0.3: write a number that is a multiple of 0.5",
        ),
        ({"parts": [{"name": "A"}]}, "parts[0].name is 'A': write a text that matches '^[a-z]+$'"),
        ({"parts": [{"name": "abcde"}]}, "parts[0].name has 5 characters: give at most 4"),
        ({"parts": []}, "parts has 0 items: give at least 1"),
        ({"parts": [{"token": 0}]}, "parts[0].token: write a whole number of at least 1"),
        (
            {"parts": [{}], "by_name": {"x": {"size": 0}}},
            "by_name[...].size: write a whole number of at least 1",
        ),
        ([], "what was sent is []: write keys with values"),
        ({"parts": [{"x": 1}]}, "Object contains unknown field `x` - at `$.parts[0]`: "),
    ],
)
def test_the_key_the_value_and_the_remedy(content, told):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(content, Whole)
    wrong = refused_value(caught.value, content)
    assert f"{wrong.problem}: {wrong.remedy}" == told


def test_a_long_value_is_cut():
    content = {"parts": "x" * 10_000}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(content, Whole)
    assert len(refused_value(caught.value, content).problem) < 100
