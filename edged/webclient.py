"""The same client over HTTP: `--url`. Standard library; one connection for each request."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from edged.client import ANSWER_S, Medium, Update, decoded, raise_remote
from edged.errors import (
    CallTimeoutError,
    ConfigError,
    EdgedError,
    NoDaemonError,
    RemoteProtocolError,
)
from edged.results import Block, Result

_JSON = "application/json"
_EVENTS = "text/event-stream"


class _Problem(msgspec.Struct):
    detail: str = ""
    title: str = ""
    code: str = "internal"


class _Update(msgspec.Struct):
    content: list[Block] = []


class WebClient:
    """A client of the daemon's HTTP listener; see `edged.client.Client`."""

    def __init__(self, url: str, token: str) -> None:
        """A client; nothing is sent yet.

        Args:
            url: `http://HOST[:PORT]`, or https behind a proxy.
            token: the bearer token.

        Raises:
            ConfigError: no such URL.
        """
        found = parts(url)
        secure = found.scheme == "https"
        self._kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port = found.hostname or "", found.port
        self._url, self._prefix = url, found.path.rstrip("/")
        self._token = token

    def close(self) -> None:
        """Nothing is open between requests."""

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, patient: bool = False
    ) -> Any:
        """Ask by the endpoint that stands for a method.

        Raises:
            EdgedError: the daemon refused, by its code, or HTTP has no such endpoint.
        """
        ask = _ASKS.get(method)
        if ask is None:
            what = method.removeprefix("edged/")
            raise EdgedError(f"{what} is not offered over HTTP: ask on the daemon's own socket")
        verb, path, body = ask(dict(params or {}))
        answer_s = None if patient else ANSWER_S
        with self._open(verb, path, body, {"Accept": _JSON}, answer_s=answer_s) as response:
            return decoded(response.read(), object)

    def call(
        self,
        name: str,
        arguments: Any,
        *,
        on_update: Update | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """Call a tool; a closed connection cancels it."""
        body = {"arguments": arguments}
        if timeout_s is not None:
            body["timeout"] = timeout_s
        headers = {"Accept": _EVENTS if on_update is not None else _JSON}
        path = f"/api/tools/{_segment(name)}/call"
        with self._open(
            "POST", path, msgspec.json.encode(body), headers, answer_s=None
        ) as response:
            if on_update is None:
                return decoded(response.read(), Result)
            for event, data in _events(response):
                if event == "update":
                    on_update(decoded(data, _Update).content)
                elif event == "result":
                    return decoded(data, Result)
        raise NoDaemonError(f"the daemon at {self._url} closed the connection: see its log")

    def follow(self, method: str, params: dict[str, Any]) -> tuple[Any, Iterator[tuple[str, Any]]]:
        """The trail, and what the events say of each call that ends after it."""
        asked = {name: value for name, value in params.items() if name != "follow"}
        return self.request(method, asked), self._ended_calls()

    def medium(self, reference: str) -> Medium:
        """Fetch the file behind a `media://` URL."""
        path = f"/api/media/{_segment(reference.removeprefix('media://'))}"
        with self._open("GET", path, None, {}) as response:
            name = response.headers.get_filename() or ""
            return Medium(response.read(), response.headers.get("Content-Type", ""), name)

    def _ended_calls(self) -> Iterator[tuple[str, Any]]:
        with self._open(
            "GET", "/api/events", None, {"Accept": _EVENTS}, answer_s=None
        ) as response:
            for kind, data in _events(response):
                event = decoded(data, dict[str, Any])
                if kind == "call.end":
                    who = {"time": event["time"], "user": event["user"], "door": ""}
                    yield "edged/log", {**who, **event["data"]}
                elif kind == "gap":
                    lost = event["data"]["next"] - event["data"]["after"] - 1
                    yield "edged/gap", {"lost": lost}
        raise NoDaemonError(f"the daemon at {self._url} closed the connection: see its log")

    @contextmanager
    def _open(
        self,
        verb: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        answer_s: float | None = ANSWER_S,
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request; the response is a success.

        Raises:
            EdgedError: it is a refusal, or the connection broke.
        """
        connection = self._kind(self._host, self._port, timeout=ANSWER_S)
        headers = {"Authorization": f"Bearer {self._token}", "Connection": "close", **headers}
        if body is not None:
            headers["Content-Type"] = _JSON
        try:
            connection.connect()
            connection.sock.settimeout(answer_s)
            connection.request(verb, self._prefix + path, body, headers)
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                self._refused(response)
            yield response
        except TimeoutError:
            raise CallTimeoutError(f"no answer from {self._url} within {ANSWER_S:g} s") from None
        except EdgedError:
            # Some are OSErrors too, and say more than what follows.
            raise
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoDaemonError(
                f"no daemon answers at {self._url} ({reason}): start it with edged serve"
            ) from None
        except ValueError as error:
            # A token or a path with characters that no header line may have.
            raise ConfigError(f"the request cannot be sent: {error}") from None
        finally:
            connection.close()

    def _refused(self, response: http.client.HTTPResponse) -> None:
        try:
            problem = msgspec.json.decode(response.read(), type=_Problem)
        except msgspec.DecodeError:
            status = f"{response.status} {response.reason}"
            text = f"{self._url} answers {status} and is no daemon: check the address"
            raise RemoteProtocolError(text) from None
        raise_remote(problem.detail or problem.title, {"code": problem.code})


def parts(url: str) -> SplitResult:
    """The parts of a daemon's address.

    Raises:
        ConfigError: it is none.
    """
    try:
        found = urlsplit(url)
        port_is_right = found.port != 0
    except ValueError:
        found, port_is_right = urlsplit(""), False
    if found.scheme not in ("http", "https") or not found.hostname or not port_is_right:
        raise ConfigError(f"{url!r} is no address: write one such as http://127.0.0.1:8420")
    return found


_Ask = tuple[str, str, bytes | None]
"""Verb, path and body of a request."""


def _query(path: str) -> Callable[[dict[str, Any]], _Ask]:
    """A method whose parameters are the query of an endpoint."""

    def ask(params: dict[str, Any]) -> _Ask:
        params.pop("action", None)
        return "GET", path + (f"?{urlencode(params)}" if params else ""), None

    return ask


def _tools_state(params: dict[str, Any]) -> _Ask:
    if "name" not in params:
        return "GET", "/api/tools", None
    body = msgspec.json.encode({"enabled": params["enabled"]})
    return "PUT", f"/api/tools/{_segment(params['name'])}/state", body


def _web_search(params: dict[str, Any]) -> _Ask:
    path = "/api/tools/web-search-config"
    return ("PUT", path, msgspec.json.encode(params)) if params else ("GET", path, None)


def _grant(params: dict[str, Any]) -> _Ask:
    if params.get("forget"):
        return "DELETE", f"/api/permission/{_segment(params['forget'])}", None
    if params:
        return "POST", "/api/permission/grant", msgspec.json.encode(params)
    return "GET", "/api/permission", None


def _jobs(params: dict[str, Any]) -> _Ask:
    if "id" not in params:
        return _query("/api/jobs")(params)
    action, path = params["action"], f"/api/jobs/{_segment(params['id'])}"
    if action in ("enable", "disable"):
        return "PUT", f"{path}/state", msgspec.json.encode({"enabled": action == "enable"})
    if action == "run":
        return "POST", f"{path}/run", None
    return ("DELETE" if action == "remove" else "GET"), path, None


def _mcp_servers(params: dict[str, Any]) -> _Ask:
    action, path = params.pop("action", "list"), "/api/mcp-servers"
    if action == "add":
        return "POST", path, msgspec.json.encode(params)
    if action == "list":
        return "GET", path, None
    path = f"{path}/{_segment(params['name'])}"
    if action == "test":
        return "POST", f"{path}/test", None
    if action == "remove":
        return "DELETE", f"{path}?purge=true" if params.get("purge") else path, None
    return "GET", path, None


def _agents(params: dict[str, Any]) -> _Ask:
    action = params["action"]
    one = f"?{urlencode({'slug': params.get('slug', '')})}"
    if action in ("enable", "disable"):
        return "PUT", f"/api/agent/update{one}", msgspec.json.encode({"status": f"{action}d"})
    if action == "import":
        body = msgspec.json.encode({"content": params["content"]})
        return "POST", "/api/agent/import", body
    if action in ("task", "stop"):
        path = f"/api/subagents/{_segment(params['task_id'])}"
        return ("GET", path, None) if action == "task" else ("POST", f"{path}/stop", None)
    return {
        "list": ("GET", "/api/agents", None),
        "show": ("GET", f"/api/agent{one}", None),
        "remove": ("DELETE", f"/api/agent/delete{one}", None),
        "tasks": ("GET", "/api/subagents", None),
    }[action]


_ASKS: dict[str, Callable[[dict[str, Any]], _Ask]] = {
    "edged/tools/state": _tools_state,
    "edged/definitions": _query("/api/tools"),
    "edged/describe": lambda params: ("GET", f"/api/tools/{_segment(params['name'])}", None),
    "edged/status": _query("/api/status"),
    "edged/log": _query("/api/log"),
    "edged/grant": _grant,
    "edged/jobs": _jobs,
    "edged/web-search": _web_search,
    "edged/mcp-servers": _mcp_servers,
    "edged/agents": _agents,
}
"""The endpoint that stands for each method."""


def _segment(text: str) -> str:
    return quote(text, safe="")


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, bytes]]:
    """Server-sent events: name and data (HTML Standard, section 9.2)."""
    name, data = "", b""
    while line := response.readline():
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data = value
        elif not line.strip() and data:
            yield name, data
            name, data = "", b""
