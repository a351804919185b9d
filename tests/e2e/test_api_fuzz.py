"""The API under generated requests, good and bad: no server error, and every answer as documented.

`fuzzed(service)` makes the app for any daemon, so that a real one can be put under the same test.
"""

import math

import msgspec
import pytest
import schemathesis
import structlog
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.generation.hypothesis.builder import (
    HypothesisTestConfig,
    HypothesisTestMode,
    create_test,
)

from fake_service import FakeService
from rota.api import ApiSettings, create_app, openapi_document
from rota.jobfile.model import JobFile
from rota.wire import Actor

ADMIN = {"Authorization": "Bearer admin-token"}
LIMITS = ApiSettings(
    hosts=("*",),  # the test client calls it by a name of its own
    requests_per_s=1e6,
    burst=1_000_000,
    strangers_per_s=1e6,
    strangers_burst=1_000_000,
    stream_s=0.02,
    poll_s=0.005,
)
KNOWN = ("1", "2", "3", "4")
# Not `positive_data_acceptance`: a job that asks for a million GPUs fits the schema and is refused.
PATIENCE_S = 600  # schemathesis gives up after 10 s, which a busy machine may need
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
BAD_INPUT = [checks.negative_data_rejection, checks.unsupported_method]
# Drawn ones, and those about jobs that exist, are sent to the real daemon (test_daemon_fuzz.py).
LIMITS_IN_TURN = (HypothesisTestMode.EXAMPLES, HypothesisTestMode.COVERAGE)
QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


def fuzzed(service):
    """Return the app of a daemon that has some jobs."""
    user = Actor("ada", "admin")
    service.submit([JobFile(run="true")] * len(KNOWN), user)
    return create_app(service, settings=LIMITS, agent_sync=echo)


def echo(body, _token):
    return msgspec.json.encode(msgspec.json.decode(body))


def eventful():
    service = FakeService()
    app = fuzzed(service)
    service.start("2")
    service.write("2", b"out \xff")
    service.start("3")
    service.finish("3")
    return app


def schema_of(app):
    """Return the schema without its tokens: every request has one, and other tests are about it."""
    document = msgspec.json.decode(msgspec.json.encode(openapi_document()))
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    made = schemathesis.openapi.from_dict(document)
    made.app = app
    return made


def generated(schema, operation, check, wanted, modes=tuple(HypothesisTestMode)):
    """Send the requests of one operation.

    They are made when a test begins, not when it is collected: every worker collects all tests.
    """
    method, path = operation.split()
    made = HypothesisTestConfig(project=schema.config, modes=[*modes], explicit_settings=wanted)
    create_test(operation=schema[path][method], test_func=check, config=made)()


ALL = [
    f"{method.upper()} {path}"
    for path, operations in openapi_document()["paths"].items()
    for method in operations
]
ABOUT_SOMETHING = [each for each in ALL if "{" in each]  # addresses with a name in them
# The soak: this many in all, whatever the number of operations.
CASES = 10_000
LONG = settings(QUICK, max_examples=math.ceil(CASES / len(ALL + ABOUT_SOMETHING)))


@pytest.fixture(scope="module")
def schema():
    return schema_of(eventful())


@pytest.fixture(autouse=True)
def quiet():
    with structlog.testing.capture_logs():
        yield


def check_as_generated(case):
    case.call_and_validate(headers=ADMIN, checks=CHECKS + BAD_INPUT, timeout=PATIENCE_S)


def check_on_known_jobs(case):
    """Random text is hardly ever the id of a job; here it always is."""
    number = len(repr(case.query)) + len(repr(case.body))
    for name, known in {"job": KNOWN, "node": ("n1", "n2"), "name": ("vera", "otto")}.items():
        if name in case.path_parameters:
            case.path_parameters[name] = known[number % len(known)]
    response = case.call(headers=ADMIN, timeout=PATIENCE_S)
    case.validate_response(response, checks=CHECKS)


@pytest.mark.parametrize("operation", ALL)
def test_no_limit_of_a_request_breaks_the_daemon(schema, operation):
    generated(schema, operation, check_as_generated, QUICK, LIMITS_IN_TURN)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("operation", ALL)
def test_many_requests_do_not_break_the_daemon(schema, operation):
    generated(schema, operation, check_as_generated, LONG)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("operation", ABOUT_SOMETHING)
def test_many_requests_about_something_that_exists_do_not_break_the_daemon(schema, operation):
    generated(schema, operation, check_on_known_jobs, LONG)
