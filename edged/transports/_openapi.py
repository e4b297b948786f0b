"""A route, declared once, and the OpenAPI 3.1 document that a table of them makes.

To add an endpoint, add a `Route` to the table of its subject (`ROUTES` of `_board`, ...):
its handler's docstring, its answers and its parameters are the description, and what
every request may be refused for is added here. A status that is not declared is a fault
(`tests/law/test_api.py`). Pure: knows no HTTP library. Source: OpenAPI Specification 3.1.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

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
        headers: those that are its own, with what they say.
    """

    status: int
    text: str
    body: Any = None
    media: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Parameter(NamedTuple):
    """A part of the path, a query parameter or a header, with its JSON Schema."""

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
        query: its query parameters.
        params: a description of each `{name}` of the path.
        headers: request headers that only it knows.
        problems: statuses of problems beside those that every request may get: 404 where
            the path names something is among these, 409 and 507 are not.
        is_open: needs no token, and any Host reaches it.
    """

    method: str
    path: str
    handler: Callable[[Any], Awaitable[Any]]
    answers: tuple[Answer, ...]
    body: Any = None
    query: tuple[Parameter, ...] = ()
    params: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()
    is_open: bool = False

    @property
    def statuses(self) -> list[int]:
        """Every status that a request may be answered with."""
        found = {answer.status for answer in self.answers}
        if not self.is_open:
            found.update(_ALWAYS, self.problems)
            if self.body is not None:
                found.update(_OF_BODIES)
            if self.params:
                found.add(404)
        return sorted(found)


class Paths:
    """Routes by their paths; one that is written out goes before one that has a name there."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        """A table of routes.

        Args:
            routes: all of them, in any order.
        """
        self._by_length: dict[int, list[tuple[Route, list[str]]]] = {}
        for route in sorted(routes, key=lambda route: route.path.count("{")):
            names = route.path.split("/")
            self._by_length.setdefault(len(names), []).append((route, names))
        written = (route.path for route in routes if "{" not in route.path)
        self._written = {path: self._look(path) for path in written}

    def match(self, raw_path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of a path by method, and the parts of it that have names.

        Args:
            raw_path: as it came, with its escapes.
        """
        return self._written.get(raw_path) or self._look(raw_path)

    def _look(self, raw_path: str) -> tuple[dict[str, Route], dict[str, str]]:
        parts = raw_path.split("/")
        found: dict[str, Route] = {}
        params: dict[str, str] = {}
        for route, names in self._by_length.get(len(parts), ()):
            pairs = [(n, p) for n, p in zip(names, parts, strict=True) if n != p]
            fits = all(name.startswith("{") and part for name, part in pairs)
            if fits and route.method not in found:
                found[route.method] = route
                params.update((name[1:-1], unquote(part)) for name, part in pairs)
        return found, params


PROBLEMS = {
    400: "the request does not fit: `faults` says where",
    401: "no valid token came with it",
    403: "this caller, host or origin may not",
    404: "no such thing for this caller",
    405: "the method is not for this path, or not without a session",
    406: "the answer is of a kind that is not accepted",
    408: "the body came too slowly",
    409: "it is there, and cannot be used or made now",
    413: "the body is over `http.max_body`",
    415: "the body is no plain application/json",
    417: "`Expect` is not understood",
    429: "too many requests or calls: wait",
    502: "a device or another server failed",
    503: "the daemon stops, or has no place left: come back",
    504: "it took too long",
    507: "the disk did not take it, and nothing changed",
}
"""What a status says, wherever it comes from (RFC 9110, section 15)."""

_ALWAYS = (400, 401, 403, 413, 429, 503)
_OF_BODIES = (408, 415, 417)

_HEADERS_OF = {
    401: ("WWW-Authenticate", "Bearer"),
    429: ("Retry-After", "seconds"),
    503: ("Retry-After", "seconds"),
}

HEADERS = {
    "Edged-Session": "scope of promoted tools and of turns; absent: the identity",
    "Edged-Channel": "channel that `message` and `send_file` use",
    "Edged-Chat": "chat that `message` and `send_file` use",
}


TEXT: dict[str, Any] = {"type": "string"}
"""Schema of a parameter that is any text."""

_HEADER = {"type": "string", "maxLength": 128, "pattern": "^[ -~]*$"}


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
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": "A board's abilities as tools. Errors are problem+json (RFC 9457).",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": {
                name: _parameter("header", Parameter(name, text, _HEADER))
                for name, text in HEADERS.items()
            },
            "responses": {
                f"Problem{status}": {
                    "description": text,
                    "content": {PROBLEM: {"schema": named[id(Problem)]}},
                    **_headers(_HEADERS_OF.get(status)),
                }
                for status, text in PROBLEMS.items()
            },
            "schemas": {name: _first_paragraph(spec) for name, spec in components.items()},
        },
    }


def _operation(route: Route, named: dict[int, Any]) -> dict[str, Any]:
    summary, _, more = (route.handler.__doc__ or "").strip().partition("\n\n")
    parameters = [_parameter("path", one) for one in route.params]
    parameters += [_parameter("query", one) for one in route.query]
    parameters += [_parameter("header", one) for one in route.headers]
    operation: dict[str, Any] = {
        "operationId": getattr(route.handler, "__name__", route.path),
        "summary": " ".join(summary.split()),
    }
    if more:
        operation["description"] = " ".join(more.split())
    if route.is_open:
        operation["security"] = []
    else:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in HEADERS]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        needed = any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {
            "required": needed,
            "content": {JSON: {"schema": named[id(route.body)]}},
        }
    responses: dict[str, Any] = {}
    for answer in route.answers:
        response = responses.setdefault(
            str(answer.status), {"description": answer.text, "content": {}}
        )
        response.update(_headers(*answer.headers))
        if not answer.media:
            # It has no body.
            del response["content"]
            continue
        schema = {} if answer.body is None else {"schema": named[id(answer.body)]}
        before = response["content"].get(answer.media)
        if before:
            schema = {"schema": {"anyOf": [before["schema"], schema["schema"]]}}
        response["content"][answer.media] = schema
    for status in route.statuses:
        responses.setdefault(str(status), {"$ref": f"#/components/responses/Problem{status}"})
    operation["responses"] = responses
    return operation


def _headers(*named: tuple[str, str] | None) -> dict[str, Any]:
    found = [pair for pair in named if pair is not None]
    if not found:
        return {}
    schema = {"type": "string"}
    return {"headers": {name: {"description": text, "schema": schema} for name, text in found}}


def _parameter(place: str, one: Parameter) -> dict[str, Any]:
    made: dict[str, Any] = {"name": one.name, "in": place, "description": one.text}
    if place == "path":
        made["required"] = True
    return {**made, "schema": one.schema}


def _first_paragraph(spec: dict[str, Any]) -> dict[str, Any]:
    """A schema whose description is the first paragraph of the type's docstring."""
    text = str(spec.get("description", "")).split("\n\n")[0]
    return {**spec, "description": " ".join(text.split())} if text else spec
