"""Structural rules of the repository that no linter checks."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

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


@pytest.mark.parametrize("lock", ["base.txt", "all.txt", "dev.txt"])
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


def test_the_lock_of_all_extras_pins_the_tested_versions():
    def pins(lock):
        text = (CHECKOUT / "requirements" / lock).read_text()
        return set(re.findall(r"^[A-Za-z0-9._-]+==[^\s;]+", text, flags=re.MULTILINE))

    extras = project_table()["project"]["optional-dependencies"]
    others = [item for extra in extras.values() for item in extra if not item.startswith("rota[")]
    asked = required_names(project_table()["project"]["dependencies"] + others)
    assert asked - locked_names("all.txt") == set()
    assert pins("all.txt") - pins("dev.txt") == set()


@cache
def imported(path):
    """Return the names of the packages that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.partition(".")[0])
    return found


# What the extra of the key has to bring to the modules of the value, beside the dependencies.
EXTRAS_OF = {
    "server": ["api", "daemon", "sdk", "live", "server.py", "cli"],
    "slurm": ["live/drivers/slurm"],
    "k8s": ["live/drivers/kubernetes"],
    "ray": ["live/drivers/ray", "study/sweep/on_ray.py"],
    "solve": ["solvers", "policies", "models"],
    "plot": ["report", "notebook"],
    "perfetto": ["tracing/perfetto.py"],
    "otel": ["tracing/spans.py"],
}


def brought(extra):
    """Return the names of what an extra installs, those of its extras included."""
    extras = project_table()["project"]["optional-dependencies"]
    inner = [re.fullmatch(r"rota\[(.*)\]", item) for item in extras[extra]]
    names = [name for match in inner if match for name in match[1].split(",")]
    own = required_names(item for item in extras[extra] if not item.startswith("rota["))
    return own.union(*map(brought, names))


distributions = cache(packages_distributions)


def others_of(modules):
    """Return the names of what must be installed for modules, other than Python itself."""
    home = distributions()
    used = set().union(*map(imported, modules)) - set(sys.stdlib_module_names) - {"rota"}
    # Several may put modules into one name: the shortest is the one that the others build on.
    owners = (min(home[name], key=lambda owner: (len(owner), owner)) for name in used)
    return {owner.lower().replace("_", "-") for owner in owners}


def modules_in(place):
    """Return the modules of a place; those of a driver with an extra of its own count there."""
    path = CHECKOUT / "src" / "rota" / place
    own = path / "drivers" / "ray"
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [module for module in found if own not in module.parents]


def test_extras_bring_what_is_imported():
    always = required_names(project_table()["project"]["dependencies"])
    # Only who writes property tests needs it, and has it.
    everything = others_of(modules_in(".")) - {"hypothesis"}
    assert everything <= always | brought("all")
    # Each extra is enough for its modules.
    lacking = {
        extra: {place: missing for place in places
                if (missing := others_of(modules_in(place)) - always - brought(extra))}
        for extra, places in EXTRAS_OF.items()
    }  # fmt: skip
    assert all(modules_in(place) for places in EXTRAS_OF.values() for place in places)
    assert {extra: missing for extra, missing in lacking.items() if missing} == {}


def test_the_extra_all_holds_every_other_extra():
    extras = project_table()["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = re.fullmatch(r"rota\[(.*)\]", everything)[1].split(",")
    assert set(named) == set(extras) - {"all"}


def test_the_citation_names_the_current_version():
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    assert citation["version"] == project_table()["project"]["version"]
