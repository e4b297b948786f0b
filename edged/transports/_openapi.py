"""A route, declared once, and the OpenAPI 3.1 document that a table of them makes.

Pure: knows no HTTP library. Source: OpenAPI Specification 3.1.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"

_REF = "#/components/schemas/{name}"


class ProblemFault(msgspec.Struct, frozen=True):
    """One fault of a request: where, and what to do."""

    path: str
    reason: str


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong (RFC 9457); `code` is stable, `retry_after` in seconds."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    faults: tuple[ProblemFault, ...] = ()
    retry_after: float | None = None
    reason_code: str = ""


class Answer(NamedTuple):
    """One answer that an endpoint gives.

    Attributes:
        status: HTTP status.
        text: when it is given.
        body: its type; None has no schema.
        media: its media type.
    """

    status: int
    text: str
    body: Any = None
    media: str = JSON


class Query(NamedTuple):
    """One query parameter with its JSON Schema."""

    name: str
    text: str
    schema: dict[str, Any]


class Route(NamedTuple):
    """One endpoint.

    Attributes:
        method: HTTP method; GET serves HEAD too.
        path: with `{name}` for a segment.
        handler: gets the request, returns the response; its docstring is the summary.
        answers: beside the problems.
        body: type of the JSON body.
        query: its parameters.
        is_open: needs no token, and any Host reaches it.
    """

    method: str
    path: str
    handler: Callable[[Any], Awaitable[Any]]
    answers: tuple[Answer, ...]
    body: Any = None
    query: tuple[Query, ...] = ()
    is_open: bool = False


HEADERS = {
    "Edged-Session": "scope of promoted tools and of turns; absent: the identity",
    "Edged-Channel": "channel that `message` and `send_file` use",
    "Edged-Chat": "chat that `message` and `send_file` use",
}


def document(routes: tuple[Route, ...], version: str) -> dict[str, Any]:
    """The OpenAPI document of a table of routes."""
    types = [Problem]
    for route in routes:
        types += [t for t in (route.body, *(a.body for a in route.answers)) if t is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    named = dict(zip((id(t) for t in types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, named)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "edged",
            "version": version,
            "description": "A board's abilities as tools. Errors are problem+json (RFC 9457).",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": {
                name: _parameter("header", name, text, {"type": "string"})
                for name, text in HEADERS.items()
            },
            "schemas": {name: _first_paragraph(spec) for name, spec in components.items()},
        },
    }


def _operation(route: Route, named: dict[int, Any]) -> dict[str, Any]:
    doc = (route.handler.__doc__ or "").strip().split("\n")[0]
    parameters: list[dict[str, Any]] = [
        _parameter("path", part[1:-1], "", {"type": "string"})
        for part in route.path.split("/")
        if part.startswith("{")
    ]
    parameters += [_parameter("query", q.name, q.text, q.schema) for q in route.query]
    operation: dict[str, Any] = {
        "operationId": getattr(route.handler, "__name__", route.path),
        "summary": doc,
    }
    if route.is_open:
        operation["security"] = []
    else:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in HEADERS]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"content": {JSON: {"schema": named[id(route.body)]}}}
    responses: dict[str, Any] = {}
    for answer in route.answers:
        response = responses.setdefault(
            str(answer.status), {"description": answer.text, "content": {}}
        )
        schema = {} if answer.body is None else {"schema": named[id(answer.body)]}
        before = response["content"].get(answer.media)
        if before:
            schema = {"schema": {"anyOf": [before["schema"], schema["schema"]]}}
        response["content"][answer.media] = schema
    responses["default"] = {
        "description": "what went wrong",
        "content": {PROBLEM: {"schema": named[id(Problem)]}},
    }
    operation["responses"] = responses
    return operation


def _parameter(place: str, name: str, text: str, schema: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "in": place, "schema": schema}
    if text:
        made["description"] = text
    if place == "path":
        made["required"] = True
    return made


def _first_paragraph(spec: dict[str, Any]) -> dict[str, Any]:
    """A schema whose description is the first paragraph of the type's docstring."""
    text = str(spec.get("description", "")).split("\n\n")[0]
    return {**spec, "description": " ".join(text.split())} if text else spec
