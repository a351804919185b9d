"""The page about the API says everything that there is."""

import json
import re
import sys

from rota.api import ApiSettings
from rota.wire import KINDS
from shared_data import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "docs" / "_ext"))

import http_api

PAGE = (CHECKOUT / "docs" / "reference" / "http-api.md").read_text()


def test_every_operation_and_shape_has_a_section(client):
    document = client.get("/api/v1/openapi.json").json()
    text = http_api.http_api("")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"### {method.upper()} {path}\n" in text
            assert f"(`{operation['operationId']}`)" in text
            for parameter in operation.get("parameters", ()):
                assert f"| `{parameter['name']}` |" in text
    for name, schema in document["components"]["schemas"].items():
        section = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        for key in schema["properties"]:
            assert f"| `{key}` |" in section


def test_links_lead_to_sections():
    text = http_api.http_api("")
    targets = set(re.findall(r"\]\(#([\w-]+)\)", text))
    sections = {name.lower() for name in re.findall(r"^### (\w+)$", text, re.MULTILINE)}
    assert targets
    assert targets <= sections


def test_the_page_names_every_kind_of_error_and_the_limits():
    assert {kind for kind in KINDS if f"`{kind}`" not in PAGE} == set()
    assert f"{ApiSettings().max_body_bytes // 2**20} MiB" in PAGE
    assert f"{ApiSettings().max_jobs:,} jobs" in PAGE


def test_the_job_on_the_page_is_accepted(client):
    (body,) = re.findall(r"-d '(.+)'", PAGE)
    assert client.post("/api/v1/jobs", json=json.loads(body)).status_code == 201
