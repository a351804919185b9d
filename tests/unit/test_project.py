"""Structural rules of the repository that no linter checks."""

import re
import subprocess
import tomllib

import pytest
import yaml

from shared_data import CHECKOUT

# Put together from parts, so that this file does not contain what it forbids.
FORBIDDEN = {
    "a package index": re.compile(
        "py" + r"pi\.org|python" + r"hosted\.org|--(extra-)?" + "index-url"
    ),
    "a machine path": re.compile(
        r"(?<![\w.~])/(" + "|".join(["work", "root", "opt/" + "py" + "pi"]) + ")/"
    ),
}


def project_files():
    """Return the files that git has, or would take."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(listing, cwd=CHECKOUT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git checkout: {error}")
    paths = [CHECKOUT / name for name in result.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def project_table():
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())


def locked_names(lock):
    text = (CHECKOUT / "requirements" / lock).read_text()
    return {
        match.lower() for match in re.findall(r"^([A-Za-z0-9._-]+)==", text, flags=re.MULTILINE)
    }


def required_names(requirements):
    return {re.match(r"[A-Za-z0-9._-]+", line)[0].lower() for line in requirements}


def test_no_module_is_a_drawer_for_everything():
    assert [path for path in project_files() if path.name == "utils.py"] == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what):
    found = {}
    for path in project_files():
        match = FORBIDDEN[what].search(path.read_text(errors="ignore"))
        if match:
            found[str(path.relative_to(CHECKOUT))] = match[0]
    assert found == {}


@pytest.mark.parametrize("lock", ["base.txt", "dev.txt"])
def test_every_requirement_is_pinned_and_hashed(lock):
    text = (CHECKOUT / "requirements" / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert lines
    assert [line for line in lines if "==" not in line or "--hash=sha256:" not in line] == []


def test_locks_cover_what_the_project_declares():
    project = project_table()["project"]
    extras = project["optional-dependencies"]
    base = required_names(project["dependencies"] + extras["solve"] + extras["plot"])
    assert base - locked_names("base.txt") == set()

    groups = project_table()["dependency-groups"]
    tools = [item for group in groups.values() for item in group if isinstance(item, str)]
    others = [item for extra in extras.values() for item in extra if not item.startswith("rota[")]
    assert (base | required_names(tools + others)) - locked_names("dev.txt") == set()


def test_the_extra_all_holds_every_other_extra():
    extras = project_table()["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = re.fullmatch(r"rota\[(.*)\]", everything)[1].split(",")
    assert set(named) == set(extras) - {"all"}


def test_the_citation_names_the_current_version():
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    assert citation["version"] == project_table()["project"]["version"]
