"""Pages are complete: whatever is registered, written or accepted is described."""

import re
import sys

import pytest

from rota.cli.listing import facts
from rota.core import registry
from rota.core.jobs import Behaviour, Job, JobSpec, Request, Shape
from rota.metrics.jobs import COLUMNS
from rota.study.config import RunConfig
from rota.study.output import Manifest
from rota.study.run import simulate
from rota.traces.cluster import _Node
from rota.traces.formats.plain import LAYOUT as PLAIN
from rota.traces.read import recognise
from rota.traces.synth.generate import GeneratorParams
from shared_data import CHECKOUT, shared

DOCS = CHECKOUT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

import generated  # noqa: E402 - the folder of Sphinx' extensions is no package

PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)#\s]+)")


def code_in(page):
    """Return the texts between backticks on a page, with everything generated put in."""
    return set(re.findall(r"`([^`\n]+)`", generated.fill((DOCS / page).read_text())))


def words_in(page):
    return set(re.findall(r"\w+", generated.fill((DOCS / page).read_text())))


@pytest.mark.parametrize("name", registry.names(registry.POLICIES))
def test_every_policy_has_a_page(name):
    page = DOCS / "policies" / f"{name}.md"
    assert page.exists()
    assert page.read_text().startswith(f"# {name}\n")


@pytest.mark.parametrize("name", registry.names(registry.POLICIES))
def test_a_page_states_the_defaults_of_its_policy(name):
    page = (DOCS / "policies" / f"{name}.md").read_text()
    stated = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    told = {key: value.strip("`").lower() for key, value in stated.items()}
    real = {item["name"]: item["default"] for item in facts(registry.POLICIES, name)["parameters"]}
    assert {key: told.get(key) for key in real} == {
        key: {"True": "yes", "False": "no", "": "none", "None": "none"}.get(value, value)
        for key, value in real.items()
    }


STATED = re.compile(
    r"1,000 jobs of \[the Philly workload\].*?, 48x8 GPUs, `([\w-]+)`, the mean completion time\s+"
    r"is ([\d.]+) s"
)


@pytest.mark.parametrize("name", registry.names(registry.POLICIES))
def test_results_on_pages_come_out(name):
    page = (DOCS / "policies" / f"{name}.md").read_text()
    for placement, mean_jct_s in STATED.findall(page):
        trace = str(shared("reference/common/philly1000.csv"))
        run = RunConfig(trace=trace, cluster="48x8", policy=name, placement=placement)
        assert f"{simulate(run).summary['avg_jct_s']:.2f}" == mean_jct_s


def test_some_pages_state_results():
    pages = "".join(page.read_text() for page in (DOCS / "policies").glob("*.md"))
    assert len(STATED.findall(pages)) > 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_generated_text_is_not_empty(page):
    for name, argument in generated.MARKER.findall(page.read_text()):
        assert generated.MAKERS[name](argument).strip()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_beside_the_pages_lead_somewhere(page):
    links = LINK.findall((CHECKOUT / page).read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (CHECKOUT / link).exists()] == []


def test_every_column_of_a_workload_is_described():
    assert set(PLAIN.titles) <= code_in("reference/workload-csv.md")


def test_every_option_of_a_generator_is_described():
    assert set(GeneratorParams.__struct_fields__) <= code_in("reference/generators.md")


def test_every_key_of_a_cluster_is_described():
    assert set(_Node.__struct_fields__) <= code_in("reference/cluster-yaml.md")


def test_every_column_of_the_jobs_is_described():
    assert set(COLUMNS) <= words_in("reference/output-files.md")


def test_every_key_of_a_manifest_is_described():
    assert set(Manifest.__struct_fields__) <= code_in("reference/output-files.md")


def test_every_key_of_a_summary_is_described(tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,num_gpus,duration_s\na,0,1,10\n")
    summary = simulate(RunConfig(trace=str(trace), cluster="1x1", policy="fifo")).summary
    keys = {*summary, *summary["assumptions"], *summary["ledger"]}
    assert keys <= code_in("reference/output-files.md")
    assert set(summary["delay"]) <= code_in("reference/reasons.md")


def test_every_group_of_entry_points_is_described():
    groups = {
        registry.POLICIES,
        registry.PLACEMENTS,
        registry.ADMISSIONS,
        registry.COSTS,
        registry.RATES,
        registry.DIALECTS,
        registry.FORMATS,
        registry.RECIPES,
    }
    assert groups <= code_in("reference/python-extension-points.md")


def test_attributes_of_a_job_exist():
    page = (DOCS / "reference" / "python-policies.md").read_text()
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"\w+", row)]
    job = Job(JobSpec("a", 0.0, Request.of(1)), Behaviour(1.0), 0, Shape(0, Request.of(1)))
    assert "held_gpus" in names
    assert [name for name in names if not hasattr(job, name)] == []


def test_formats_are_recognised_as_the_guide_says(tmp_path):
    guide = (DOCS / "how-to" / "use-your-own-trace.md").read_text()
    files = re.findall(r"^% file (\w+)\.csv\n```text\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    found = {}
    for name, text in files:
        path = tmp_path / name
        path.write_text(text)
        found[name] = recognise(path).name
    assert found == {"mine": "csv", "philly": "philly"}
