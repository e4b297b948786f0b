"""Every endpoint is described, by the table that serves it (contract, section 6)."""

import inspect
import json

import msgspec
import pytest
from openapi_spec_validator import validate

from edged.errors import WIRE
from edged.transports._openapi import PROBLEMS, document
from edged.transports._routes import ROUTES

DOCUMENT = json.loads(msgspec.json.encode(document(ROUTES, "1.2.3")))
NAMES = [f"{route.method} {route.path}" for route in ROUTES]
each_route = pytest.mark.parametrize("route", ROUTES, ids=NAMES)


def test_the_description_is_an_openapi_document():
    """OpenAPI 3.1, by a public validator."""
    validate(DOCUMENT)


def test_each_endpoint_is_there_once():
    """One table makes the routing and the description."""
    assert len(set(NAMES)) == len(NAMES)
    operations = [one for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(operations) == len(ROUTES)
    assert len({one["operationId"] for one in operations}) == len(ROUTES)


@each_route
def test_an_endpoint_says_what_it_does_takes_and_answers(route):
    """To add an endpoint: `edged/transports/_openapi.py`."""
    told = DOCUMENT["paths"][route.path][route.method.lower()]
    assert told["summary"].endswith("."), "its handler's docstring begins with one sentence"
    assert [p.name for p in route.params] == [
        part[1:-1] for part in route.path.split("/") if part.startswith("{")
    ], "`params` describes each name of the path, in its order"
    for one in (*route.params, *route.query, *route.headers):
        assert one.text, f"{one.name}: what is it?"
        assert one.schema, f"{one.name}: its JSON Schema"
    for answer in route.answers:
        assert answer.text, f"{answer.status}: when?"
        assert (
            answer.body is not None
            or answer.media != "application/json"
            or (route.path == "/openapi.json")
        ), f"{answer.status}: the type of its body"
    assert any(answer.status < 400 for answer in route.answers)
    if route.body is not None:
        assert told["requestBody"]["content"].keys() == {"application/json"}


@each_route
def test_a_handler_reads_the_query_that_its_route_declares(route):
    """What it reads and does not declare is refused before it gets there."""
    source = inspect.getsource(route.handler)
    for one in route.query:
        assert f'"{one.name}"' in source, f"{one.name} is declared and not read"


@each_route
def test_a_problem_that_an_endpoint_answers_with_is_known(route):
    """Contract, section 6: problem+json with a stable code."""
    assert set(route.problems) <= PROBLEMS.keys()
    answered = DOCUMENT["paths"][route.path][route.method.lower()]["responses"]
    assert "default" not in answered, "an answer that is not declared is a fault"
    assert all(status in answered for status in map(str, route.problems))


def test_each_status_of_an_error_has_words():
    """The one table of errors, and what HTTP alone has; 500 is a fault of edged's."""
    assert {wire.http for wire in WIRE.values()} - {500} <= PROBLEMS.keys()


def test_each_shape_is_described():
    """The docstring of its type."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert schema.get("description"), f"{name} has no docstring"
