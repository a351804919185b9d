"""Tenants and priority classes in cluster files."""

import pytest

from rota.core.errors import ClusterSpecError
from rota.core.tenants import PriorityClass, Tenant
from rota.traces.cluster import parse_cluster

SHARED = """
nodes: 2x4
tenants:
  - {name: a, quota: 4, lend: 1, borrow: 2}
priority_classes:
  - {name: urgent, value: 10, preemptible: false}
  - {name: idle, value: -1, guaranteed: false, min_runtime_s: 60}
"""


def described(tmp_path, text):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return str(path)


def test_lending_and_classes(tmp_path):
    _, tenants = parse_cluster(described(tmp_path, SHARED))
    assert list(tenants) == [Tenant("a", quota=4, lend=1, borrow=2)]
    assert tenants.classes == (
        PriorityClass("idle", -1, min_runtime_s=60, guaranteed=False),
        PriorityClass("urgent", 10, preemptible=False),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tenants: [{name: a, lend: -1}]", r"tenants\[0\]: lend is -1: give 0 or more"),
        ("tenants: [{name: a, borrow: .nan}]", r"borrow is nan: give 0 or more"),
        ("priority_classes: [{value: 3}]", r"priority_classes\[0\]: has no name"),
        ("priority_classes: [{name: a, valu: 3}]", "unknown key 'valu': did you mean 'value'"),
        ("priority_classes: [{name: a, value: 1.5}]", "value is 1.5: expected int"),
        ("priority_classes: [{name: a, min_runtime_s: -3}]", "min_runtime_s is -3: give 0 or"),
        ("priority_classes: [{name: a}, {name: b}]", "both have the value 0: values must differ"),
        ("priority_classes: 4", "priority_classes is 4: give a list"),
    ],
)
def test_mistakes_are_told(tmp_path, text, message):
    with pytest.raises(ClusterSpecError, match=message):
        parse_cluster(described(tmp_path, f"nodes: 1x1\n{text}\n"))
