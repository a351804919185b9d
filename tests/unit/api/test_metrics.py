"""Numbers for Prometheus, and the dashboard that draws them."""

import json
import re
from importlib.resources import files

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.core.errors import UnavailableError
from rota.wire import QueueInfo

JOBS = "/api/v1/jobs"


def numbers(client):
    """Return everything that /metrics tells: value by name and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_licences_have_numbers_by_kind(client, service, monkeypatch):
    assert not any(name[0].startswith("rota_licences") for name in numbers(client))
    use = {"total": 3.0, "used": 2.0, "spent": 0.0, "asked": 4.0, "waiting": ["7"]}
    told = service.status()
    monkeypatch.setattr(service, "status", lambda: {**told, "licences": {"matlab": use}})
    found = numbers(client)
    names = [f"rota_licences{end}" for end in ("", "_used", "_spent", "_asked")]
    assert [found[name, "matlab"] for name in names] == [3, 2, 0, 4]


def test_the_numbers_are_those_of_the_daemon(client, service):
    client.post(JOBS, json=[{"run": "x", "queue": "a", "resources": {"gpus": 2}}] * 3)
    service.start("1")
    found = numbers(client)
    assert found["rota_jobs", "running"] == 1
    assert found["rota_jobs", "pending"] == 2
    assert (found["rota_gpus",], found["rota_gpus_free",], found["rota_gpus_used",]) == (8, 6, 2)
    assert found["rota_queue_gpus_used", "a"] == 2
    assert found["rota_queue_gpus_asked", "a"] == 4
    assert found["rota_queue_jobs", "a", "pending"] == 2
    assert found["rota_submissions_total",] == 3
    assert found["rota_nodes", "up"] == 2
    assert found["rota_ready",] == 1
    assert found["rota_decision_seconds_bucket", "0.1"] == 2
    assert found["rota_decision_seconds_bucket", "+Inf"] == 3
    assert found["rota_decision_seconds_count",] == 3
    assert found["rota_start_seconds_sum",] == pytest.approx(0.12)


def test_requests_are_counted_by_template_and_class(client):
    for number in range(5):
        client.get(f"{JOBS}/{number}")
        client.get(f"/nowhere/{number}")
        client.request(f"METHOD{number}", JOBS)
    found = numbers(client)
    assert found["rota_api_requests_total", "/api/v1/jobs/{job}", "4xx", "GET"] == 5
    assert found["rota_api_requests_total", "4xx", "GET", "unmatched"] == 5
    assert found["rota_api_requests_total", "/api/v1/jobs", "4xx", "other"] == 5
    assert found["rota_api_request_seconds_count", "/api/v1/jobs/{job}", "GET"] == 5


def test_the_number_of_queues_is_bounded_and_stable(make_client, service):
    client = make_client(queue_labels=3)
    service.extra_queues = [QueueInfo(name=f"q{n}", gpus=1.0) for n in range(3)]
    assert numbers(client)["rota_queue_gpus_used", "q0"] == 1
    service.extra_queues = [QueueInfo(name=f"a{n}", gpus=1.0) for n in range(9)]
    service.extra_queues += [QueueInfo(name="q0", gpus=5.0)]
    found = numbers(client)
    assert found["rota_queue_gpus_used", "other"] == 9
    assert found["rota_queue_gpus_used", "q0"] == 5
    assert len([key for key in found if key[0] == "rota_queue_gpus_used"]) == 2


def test_hostile_names_of_queues_stay_labels(client, service):
    name = 'x"} 1\nrota_gpus 999\n\\'
    service.extra_queues = [QueueInfo(name=name, gpus=3.0)]
    found = numbers(client)
    assert found["rota_queue_gpus_used", name] == 3
    assert found["rota_gpus",] == 8


def test_missing_and_odd_keys_are_left_out(client, service):
    service.status = lambda: {"jobs": 3, "decision_s": [0.1, 0.2], "start_s": {"p99": 1.0}}
    found = numbers(client)
    assert not [
        key for key in found if key[0].startswith(("rota_jobs", "rota_decision", "rota_gpus"))
    ]
    assert found["rota_ready",] == 1


def test_a_daemon_that_is_busy_still_has_metrics(client, service):
    service.broken = UnavailableError("the store is locked")
    assert numbers(client)["rota_ready",] == 0


def test_units_are_seconds_and_names_are_ours(client, service):
    client.post(JOBS, json={"run": "x"})
    client.get(JOBS)
    names = {key[0] for key in numbers(client)}
    assert names
    assert {name for name in names if not name.startswith(("rota_", "process_"))} == set()
    assert {name for name in names if re.search(r"_(ms|millis|minutes|s)$", name)} == set()


def dashboard():
    return json.loads(files("rota.api").joinpath("dashboards/grafana.json").read_text())


def test_the_dashboard_draws_numbers_that_exist(client, service):
    client.post(JOBS, json={"run": "x"})
    names = {key[0] for key in numbers(client)}
    labels = set(re.findall(r"[{,](\w+)=\"", client.get("/metrics").text)) | {"instance"}
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    for expression in expressions:
        used = set(re.findall(r"\b((?:rota|process)_\w+)", expression))
        assert used
        assert used <= names, expression
        matched = set(re.findall(r"[{,](\w+)!?=", expression))
        grouped = set(re.findall(r"by \((\w+)\)", expression))
        assert (matched | grouped) <= labels, expression


def test_most_numbers_are_on_the_dashboard(client):
    client.post(JOBS, json={"run": "x"})
    text = json.dumps(dashboard())
    told = {re.sub(r"_(bucket|sum|count)$", "", key[0]) for key in numbers(client)}
    missing = {name for name in told if name.startswith("rota_") and name not in text}
    assert missing <= {"rota_queue_gpus_quota"}


def test_panels_do_not_overlap():
    taken = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
