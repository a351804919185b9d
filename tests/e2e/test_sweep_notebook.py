"""The notebook among the examples runs from its first cell to its last."""

import nbformat
import pytest
from nbclient import NotebookClient

from shared_data import CHECKOUT

NOTEBOOK = CHECKOUT / "examples" / "notebooks" / "compare-policies.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def codes(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    return {kind for output in cell.outputs for kind in output.get("data", ())}


def test_the_notebook_is_stored_without_outputs(notebook):
    nbformat.validate(notebook)
    assert codes(notebook)
    assert [cell.outputs for cell in codes(notebook)] == [[]] * len(codes(notebook))
    assert {cell.execution_count for cell in codes(notebook)} == {None}


def test_the_notebook_runs_and_shows_tables_and_pictures(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    made, listed, results, numbers, picture, single, cdf, again = codes(notebook)
    assert (
        "27 runs over workload, cluster, policy, load, seed"
        in made.outputs[0]["data"]["text/plain"]
    )
    assert "text/html" in kinds(listed)
    assert results.outputs[0]["data"]["text/html"].count("<tr>") == 1 + 9
    assert "avg_jct_s" in numbers.outputs[0]["data"]["text/html"]
    assert "image/png" in kinds(picture)
    assert "mean JCT" in single.outputs[0]["data"]["text/html"]
    assert "image/png" in kinds(cdf)
    assert again.outputs[0]["data"]["text/plain"] == "0"
    assert (tmp_path / "loads" / "results.csv").is_file()
