"""Manifests, chart and Dockerfile of the Kubernetes examples: one truth, and every step exists.

There is no engine for containers here, and not everywhere Helm. The chart uses four words of the
language of templates, and this file knows only these: what it renders must be the plain manifests,
which the tests of the queue give to a real API server. Where Helm is, it must render the same.
"""

import json
import re
import shlex
import tomllib

import pytest
import yaml

from helm_chart import helm
from rota.cli.app import rota
from rota.daemon.settings import read_settings
from rota.wire import OPERATIONS, PUBLIC
from shared_data import CHECKOUT

FOLDER = CHECKOUT / "examples/kubernetes"
CHART = FOLDER / "chart"
WORD = re.compile(r"\{\{-? *(.*?) *-?\}\}\n?")
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]


def render(name, values):
    """A template of the chart, with values, in the namespace `default`."""
    shown, found, at = [True], [], 0
    content = (CHART / "templates" / name).read_text()
    for match in WORD.finditer(content):
        found.append(content[at : match.start()] if all(shown) else "")
        at = match.end()
        word = match[1]
        if word == "end":
            shown.pop()
        elif word.startswith("if "):
            shown.append(bool(values[word.removeprefix("if .Values.")]))
        else:
            tail = "\n" if match[0].endswith("\n") else ""
            found.append(_value(word, values) + tail if all(shown) else "")
    assert shown == [True], f"{name}: a condition does not end"
    return list(yaml.safe_load_all("".join([*found, content[at:]])))


def _value(word, values):
    if word == ".Release.Namespace":
        return "default"
    name, _, as_json = word.removeprefix(".Values.").partition(" | ")
    assert word.startswith(".Values."), f"{word}: is not known here"
    assert as_json in ("", "toJson"), f"{word}: is not known here"
    return json.dumps(values[name]) if as_json else str(values[name])


@pytest.fixture(scope="module")
def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("name", ["rbac.yaml", "rota.yaml", "scheduler.yaml", "queue.yaml"])
def test_the_chart_renders_the_plain_manifests(name, values):
    plain = list(yaml.safe_load_all((FOLDER / name).read_text()))
    assert render(name, {**values, "scheduler": True, "queue": True}) == plain
    if name in ("scheduler.yaml", "queue.yaml"):
        assert render(name, values) in ([], [None])


def by_name(items):
    return {(item["kind"], item["metadata"]["name"]): item for item in items if item}


def test_helm_renders_the_plain_manifests(tmp_path):
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), home=tmp_path)
    plain = [
        yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())
        for name in ("rbac", "rota", "scheduler", "queue")
    ]
    switches = ("--set", "scheduler=true", "--set", "queue=true")
    all_of = helm("template", "rota", str(CHART), *switches, home=tmp_path)
    assert by_name(yaml.safe_load_all(all_of)) == by_name(item for each in plain for item in each)
    own = helm("template", "rota", str(CHART), "-n", "lab", home=tmp_path)
    made = by_name(yaml.safe_load_all(own))
    assert not {name for _, name in made} & {"rota-scheduler", "rota-queue"}
    spaces = {item["metadata"].get("namespace") for item in made.values()}
    assert spaces == {"lab", None}  # roles of the whole cluster have none


def test_the_chart_has_all_templates_and_the_version_of_the_package(values):
    names = {path.name for path in (CHART / "templates").iterdir()}
    assert names == {"rbac.yaml", "rota.yaml", "scheduler.yaml", "queue.yaml"}
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == PROJECT["version"]
    assert values["image"].endswith(f":{PROJECT['version']}")


def manifest(kind):
    items = yaml.safe_load_all((FOLDER / "rota.yaml").read_text())
    return next(item for item in items if item["kind"] == kind)


def test_the_configuration_of_the_manifest_is_read(tmp_path):
    config = tmp_path / "rota.yaml"
    config.write_text(manifest("ConfigMap")["data"]["rota.yaml"])
    settings = read_settings(config, {})
    assert (settings.backend, settings.address) == ("kubernetes", ("0.0.0.0", 7842))  # noqa: S104


def test_the_probes_ask_what_anybody_may_ask_where_the_daemon_listens():
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    public = {
        each.path for each in OPERATIONS.values() if each.role == PUBLIC and each.method == "GET"
    }
    probes = {key: container[key]["httpGet"] for key in container if key.endswith("Probe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "livenessProbe": "/healthz", "readinessProbe": "/readyz", "startupProbe": "/healthz",
    }  # fmt: skip
    assert {probe["path"] for probe in probes.values()} <= public
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {(7842, "HTTPS")}
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    paths = (word for word in container["args"] if word.startswith("/"))
    assert all(any(path.startswith(mount) for mount in mounts) for path in paths)


def test_the_command_of_the_manifest_is_one():
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    command, *words = pod["containers"][0]["args"]
    assert command in PROJECT["scripts"]
    serve = rota.get_command(None, words[0])
    known = {flag for option in serve.params for flag in option.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_step_of_the_dockerfile_exists():
    lines = [
        line.split(" ", 1)
        for line in (FOLDER / "Dockerfile").read_text().splitlines()
        if not line.startswith("#")
    ]
    steps = {}
    for word, rest in lines:
        steps.setdefault(word, []).append(rest)
    assert set(steps) == {"FROM", "COPY", "RUN", "USER", "ENV", "EXPOSE", "CMD"}
    assert steps["FROM"] == [f"python:{PROJECT['requires-python'].removeprefix('>=')}-slim"]
    (copied,) = steps["COPY"]
    assert copied == "dist/rota-*-py3-none-any.whl /tmp/"  # as `make dist` calls it
    extras = re.findall(r"\$wheel\[(\w+)\]", steps["RUN"][0])
    assert extras == ["k8s"]
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    assert steps["USER"] == [str(pod["securityContext"]["runAsUser"])]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert set(pod["containers"][0]["resources"]["requests"]) == {"cpu", "memory"}
    assert f"--uid {steps['USER'][0]} " in steps["RUN"][1]
    assert json.loads(steps["CMD"][0])[0] in PROJECT["scripts"]
    assert steps["EXPOSE"] == ["7842"]
    for run in steps["RUN"]:
        assert shlex.split(run)
