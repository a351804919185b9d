"""What only some may see or remove."""

import pytest

from rota.core.errors import GoneError

EVENTS = "/api/v1/events"


def test_a_node_is_removed_by_operators(make_client, service):
    operator = make_client("operator-token")
    assert operator.delete("/api/v1/nodes/n1").status_code == 409
    assert make_client("user-token").delete("/api/v1/nodes/n1").status_code == 403
    operator.post("/api/v1/nodes/n1/drain")
    assert operator.delete("/api/v1/nodes/n1").status_code == 204
    assert [node["name"] for node in operator.get("/api/v1/nodes").json()] == ["n2"]
    assert operator.delete("/api/v1/nodes/n1").status_code == 404


@pytest.mark.parametrize(
    ("who", "seen"),
    [("viewer", 1), ("user", 1), ("operator", 2), ("admin", 2)],
)
def test_notes_are_for_operators(make_client, service, who, seen):
    service.row("note", "token 'eve' with the role user created by ada")
    service.row("node_up")
    events = make_client(f"{who}-token").get(EVENTS).json()["events"]
    assert len(events) == seen
    assert ("note" in {event["event"] for event in events}) == (seen == 2)


def test_output_that_is_gone_says_where_the_rest_begins(make_client, service):
    client = make_client()
    client.post("/api/v1/jobs", json={"run": "x"})
    service.broken = GoneError("job 1: the output before byte 50 was rotated away", 50)
    answer = client.get("/api/v1/jobs/1/logs")
    assert (answer.status_code, answer.headers["Rota-First-Offset"]) == (410, "50")
    assert answer.json()["kind"] == "gone"


def test_the_end_of_an_input_needs_no_body(make_client, service):
    """As the schema says: no bytes are an input, too."""
    client = make_client()
    client.post("/api/v1/jobs", json={"run": "x"})
    path = "/api/v1/jobs/{job}/channels/{channel}/input"
    shown = client.get("/api/v1/openapi.json").json()["paths"]
    assert shown[path]["post"]["requestBody"]["required"] is False
    assert shown["/api/v1/jobs"]["post"]["requestBody"]["required"] is True
    assert client.post("/api/v1/jobs/1/channels/main/input?eof=true").status_code == 200
    assert (service.reached[-1].data, service.reached[-1].eof) == (b"", True)
    assert client.post("/api/v1/jobs").status_code == 422
