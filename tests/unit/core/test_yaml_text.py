"""Numbers in YAML files mean what they mean in JSON."""

from math import inf

import pytest

from rota.core.yaml_text import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e300", 1e300), ("1e-3", 1e-3), ("-2E5", -2e5), ("+.5e1", 5.0), ("1.e3", 1e3),
        ("'1e3'", "1e3"), ("1e", "1e"), ("e5", "e5"), ("n1e3", "n1e3"), ("7", 7), ("0.5", 0.5),
        ("1e400", "1e400"), (".inf", inf),
    ],
)  # fmt: skip
def test_exponents_need_no_point_and_no_sign(text, value):
    assert read_yaml(f"key: {text}") == {"key": value}
    assert type(read_yaml(text)) is type(value)
