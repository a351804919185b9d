"""Rota's own YAML files: clusters, settings, sweeps, parameters."""

import re
from math import isinf
from typing import Any

from yaml import SafeLoader, ScalarNode, YAMLError, load

__all__ = ["YAMLError", "YamlLoader", "read_yaml"]


class YamlLoader(SafeLoader):
    """Numbers with an exponent are numbers without a point and a sign, too.

    So they are in YAML 1.2 and in JSON; in YAML 1.1 `1e-3` and `1e300` would be texts.
    """

    def number(self, node: ScalarNode) -> float | str:
        """A number; one beyond all floats stays what was written, and is refused as that."""
        value = float(self.construct_yaml_float(node))
        return node.value if isinf(value) and "inf" not in node.value.lower() else value


YamlLoader.add_constructor("tag:yaml.org,2002:float", YamlLoader.number)
YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z"),
    list("-+.0123456789"),
)


def read_yaml(text: str) -> Any:
    """The one document of a text.

    Raises:
        YAMLError: It is not YAML.
        ValueError: It holds a date that does not exist.
    """
    return load(text, YamlLoader)  # noqa: S506 - derived from SafeLoader
