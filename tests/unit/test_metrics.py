"""`make metrics`: what the report counts, on a package small enough to count by hand."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
FILES = {
    "__init__.py": '"""A package."""\n',
    "policies/__init__.py": "",
    "policies/one.py": "from rota.solvers import linear\n\n\nclass One:\n    x = 1\n",
    "solvers/__init__.py": "",
    "solvers/linear.py": (
        '"""Solve.\n\nWell.\n"""\n\n\ndef solve():\n'
        "    # lazily\n    from rota.solvers import helper\n\n    return helper\n"
    ),
    "solvers/helper.py": "from rota.solvers.linear import solve\n\n\nclass One:\n    pass\n",
    "other.py": "from rota.policies.one import One\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "src" / "rota" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "pyproject.toml").write_text(
        '[project.entry-points."rota.policies"]\none = "rota.policies.one:One"\n'
    )
    return tmp_path


@pytest.fixture
def found(tree, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import metrics

    return metrics.measure(tree, walks=False)


def test_lines_are_told_apart(found):
    assert found["lines"] == {"code": 10, "docstring": 5, "comment": 1, "blank": 7}


def test_a_lazy_import_closes_a_cycle(found):
    assert found["import_cycles"] == [["rota.solvers.helper", "rota.solvers.linear"]]


def test_a_cycle_is_one_step_of_the_import_depth(found):
    assert found["import_depth"] == 3  # other, policies.one, the cycle


def test_classes_with_the_same_name_are_found(found):
    assert found["shared_class_names"] == {"One": ["rota.policies.one", "rota.solvers.helper"]}


def test_reading_a_policy_includes_what_it_imports(found):
    assert found["reading"]["one"] == {"name": "3 modules", "lines": 5 + 11 + 5}


def report(monkeypatch, capsys):
    import metrics

    monkeypatch.setattr(sys, "argv", ["metrics.py", "--no-walks"])
    metrics.main()
    return capsys.readouterr().out


def test_the_script_prints_a_table(found, tree, monkeypatch, capsys):
    import metrics

    monkeypatch.setattr(metrics, "TREE", tree)
    printed = report(monkeypatch, capsys)
    for row in ("files", "import cycles", "class names used twice", "lines to read for a policy"):
        assert f"\n{row}" in f"\n{printed}"


@pytest.mark.soak
def test_the_script_reports_this_project(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    assert "class names used twice" in report(monkeypatch, capsys)


def test_this_project_has_no_import_cycle_and_no_class_name_twice(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import metrics

    source = metrics.Source(SCRIPTS.parent)
    assert source.cycles() == []
    assert source.shared_names() == {}
