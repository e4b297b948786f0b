"""10,000 requests drawn from the API's own description: no 5xx, no undocumented answer.

Schemathesis draws requests that fit /openapi.json and requests that do not, sends them
to a daemon with the simulated board, and holds each answer against the document: status,
content type, headers, schema; what does not fit must be refused. Each built-in tool that
stays on the board is called by its own schema too. `tests/integration/test_api.py` runs a
slice of this.
"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
from collections import Counter
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from requests.adapters import HTTPAdapter
from schemathesis import GenerationMode
from schemathesis.checks import negative_data_rejection, positive_data_acceptance
from schemathesis.core.failures import FailureGroup

from tests.bench.fuzz import ANSWER_S, CONFIG, _opened
from tests.bench.load import PYTHON, edged
from tests.bench.table import Table

CASES = 10_000
CALL_S = 0.05
"""Longest call of a tool: some wait for what never comes."""

CALLED = ("hardware", "discovery", "system", "filesystem")
"""Categories of tools that are called by their own schemas: nothing leaves the board."""

NOT_CALLED = ("exec",)


class Events(HTTPAdapter):
    """An event stream has no end: its head is read, and what is there at once."""

    def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
        answer = super().send(request, *args, **{**options, "stream": True})
        if "/api/events" in request.url and answer.ok and request.method == "GET":
            parts = iter((answer.raw.read1(4_096), b""))
            answer.raw.read1 = lambda *_, **__: next(parts)
        return answer


class Api:
    """A daemon's API, and those who ask it."""

    def __init__(self, url: str, *tokens: str) -> None:
        self.url = url
        self.sessions = [self._session(token) for token in tokens]
        self.names: dict[str, list[str]] = {"id": []}
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.faults: dict[str, str] = {}

    def _session(self, token: str) -> requests.Session:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
        session.mount("http://", Events())
        return session

    def close(self) -> None:
        for session in self.sessions:
            session.close()

    def get(self, path: str) -> Any:
        answer = self.sessions[0].get(f"{self.url}{path}", timeout=ANSWER_S)
        answer.raise_for_status()
        return answer.json()

    def call(self, tool: str, **body: Any) -> Any:
        url = f"{self.url}/api/tools/{tool}/call"
        return self.sessions[0].post(url, json=body, timeout=ANSWER_S).json()

    def prepare(self) -> None:
        """Things that requests can name: tools, sensors, a result, a medium."""
        tools = [row["name"] for row in self.get("/api/tools")["tools"]]
        sensors = [row["name"] for row in self.get("/api/sensors")["sensors"]]
        made = self.call("hello", arguments={"name": "Ada\n" * 20_000})
        later = self.call("echo", arguments={"text": "x"}, **{"async": True})
        self.names = {
            "/api/tools": tools,
            "/api/sensors": sensors,
            "/api/media": [made["truncated"]["media"].removeprefix("media://")],
            "/api/calls": [later["call_id"]],
        }

    def document(self, *, tools: bool) -> dict[str, Any]:
        """The document, with a path of its own for the call of each tool where wanted.

        Without its security: three of four drawn requests would carry no token. The headers
        that all endpoints know are drawn for one of them: they are most of the work.
        """
        made = self.get("/openapi.json")
        del made["security"]
        for path, operations in made["paths"].items():
            for one in operations.values():
                if path != "/api/turn":
                    one["parameters"] = [p for p in one.get("parameters", ()) if "$ref" not in p]
        if not tools:
            return made
        call = made["paths"]["/api/tools/{name}/call"]["post"]
        for row in self.get("/api/tools")["tools"]:
            if row["category"] not in CALLED or row["name"] in NOT_CALLED:
                continue
            one = copy.deepcopy(call)
            one["operationId"] += f"_{row['name']}"
            one["parameters"] = [p for p in one["parameters"] if p.get("in") != "path"]
            schema = self.get(f"/api/tools/{row['name']}")["schema"]
            one["requestBody"]["content"]["application/json"]["schema"] = {
                "type": "object",
                "required": ["arguments", "timeout"],
                "additionalProperties": False,
                "properties": {"arguments": schema, "timeout": {"const": CALL_S}},
            }
            made["paths"][f"/api/tools/{row['name']}/call"] = {"post": one}
        return made

    def named(self, case: Any, draw: int) -> None:
        """Put the name of something that is there into the path."""
        for prefix, known in self.names.items():
            if case.path.startswith(prefix) and known and case.path_parameters:
                key = next(iter(case.path_parameters))
                case.path_parameters[key] = known[draw % len(known)]

    def check(self, case: Any, session: requests.Session) -> None:
        answer = case.call(base_url=self.url, session=session, timeout=ANSWER_S)
        self.statuses[case.operation.label, answer.status_code] += 1
        if answer.status_code == 202 and answer.content and "call_id" in answer.json():
            self.names["/api/calls"] = [*self.names["/api/calls"][-9:], answer.json()["call_id"]]
        # Some names are of nothing, and some rules are over several inputs.
        excluded = [positive_data_acceptance]
        if "{name}" not in case.path and case.path.endswith("/call"):
            # A tool takes "5" for 5, and null where an input may be absent.
            excluded.append(negative_data_rejection)
        try:
            case.validate_response(answer, excluded_checks=excluded)
        except FailureGroup as group:
            for one in group.exceptions:
                title = str(one).split("\n", 1)[0]
                name = f"{case.operation.label}: {title}"
                self.faults.setdefault(name, f"{one}\n{case.as_curl_command()}")


def feed(api: Api, count: int, *, tools: bool = True) -> None:
    """Send `count` requests, spread over all operations, half of them wrong on purpose.

    Args:
        api: who is asked.
        count: at least so many.
        tools: each tool is called by its own schema too.
    """
    schema = schemathesis.openapi.from_dict(api.document(tools=tools))
    found, bare = [], []
    # What switches tools off comes last, for the calls' sake.
    for one in sorted((one.ok() for one in schema.get_all_operations()), key=_is_switch):
        sent = {parameter.location for parameter in one.iter_parameters()}
        (found if one.body or sent else bare).append((one, GenerationMode.POSITIVE))
        # Any text is a segment of a path.
        if one.body or sent & {"query", "header"}:
            found.append((one, GenerationMode.NEGATIVE))
    for operation, mode in bare:
        feed_one(api, operation, mode, 1)
    for operation, mode in found:
        feed_one(api, operation, mode, -(-count // len(found)))


def _is_switch(operation: Any) -> bool:
    return operation.method == "put"


def feed_one(api: Api, operation: Any, mode: GenerationMode, count: int) -> None:
    @hypothesis.seed(count)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        operation.as_strategy(generation_mode=mode),
        st.sampled_from(api.sessions),
        st.integers(0, 1_000),
    )
    def run(case: Any, session: requests.Session, draw: int) -> None:
        if mode is GenerationMode.POSITIVE and draw % 4:
            api.named(case, draw)
        api.check(case, session)

    run()


def agent_token(path: str) -> str:
    """A token of an agent beside the owner's first one, from the daemon at a socket."""
    words = ["token", "add", "fuzz", "--role", "agent", "--user", "ada@example.org"]
    argv = [PYTHON, "-m", "edged", *words, "--socket", path]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()[-1]


def measure(table: Table, directory: str) -> None:
    errors_path = os.path.join(directory, "stderr")
    argv = edged(directory, CONFIG, "--sim")
    with open(errors_path, "wb") as errors, subprocess.Popen(argv, stderr=errors) as process:
        try:
            port, token = _opened(directory)
            api = Api(f"http://127.0.0.1:{port}", token, agent_token(f"{directory}/edged.sock"))
            api.prepare()
            feed(api, CASES)
            api.get("/api/status")
            api.close()
            ended = process.poll() is not None
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(ANSWER_S)
    total = api.statuses.total()
    by_class = Counter[str]()
    for (_, status), count in api.statuses.items():
        by_class[f"{status // 100}xx"] += count
    table.note(", ".join(f"{name}: {count}" for name, count in sorted(by_class.items())))
    table.row("requests drawn from the API's description", total, at_least=CASES, unit=" ")
    table.row("answers that it does not describe, and 5xx", len(api.faults), at_most=0, unit=" ")
    table.row("daemons that ended by them", ended + process.returncode, at_most=0, unit=" ")
    for fault in list(api.faults.values())[:10]:
        table.note(fault)
