"""The HTTP API is what its description and the specification say (contract, section 6)."""

import contextlib
import json
import re
from pathlib import Path

import pytest

from edged import settings
from edged.transports._routes import ROUTES
from tests.bench import api

ROOT = Path(__file__).parents[2]
SPECIFICATION = (ROOT / "tests" / "data" / "tools-api.md").read_text()
CONFIG = "tools: {echo: {enabled: true}}\n"
CASES = 250


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(config=CONFIG) as running:
        yield running


def plain(text):
    """JSON of the specification, which has comments."""
    return json.loads(re.sub(r"  // .*", "", text))


def examples():
    """Method, path, request and response of each endpoint of "Backend API Endpoints"."""
    section = SPECIFICATION.split("## Backend API Endpoints")[1].split("\n## ")[0]
    for part in re.split(r"^#### ", section, flags=re.MULTILINE)[1:]:
        method, path = re.search(r"```\n(\w+) (\S+)\n```", part).groups()
        body = re.search(r"\*\*Request Body\*\*:\n```json\n(.*?)```", part, re.DOTALL)
        answer = re.search(r"\*\*Response\*\*:\n```json\n(.*?)```", part, re.DOTALL)
        yield method, path, body and plain(body[1]), answer and plain(answer[1])


def shaped(value, like):
    """Whether a value has at least the keys of an example, with values of its types."""
    if isinstance(like, dict):
        return isinstance(value, dict) and all(
            key in value and shaped(value[key], one) for key, one in like.items()
        )
    if isinstance(like, list):
        return isinstance(value, list) and all(shaped(one, like[0]) for one in value)
    return type(value) is type(like)


EXAMPLES = [
    one for one in examples() if any(one[:2] == (route.method, route.path) for route in ROUTES)
]


def test_the_management_of_tools_is_among_the_examples():
    """Nothing is compared with nothing."""
    named = [one[:2] for one in EXAMPLES]
    assert named[:2] == [("GET", "/api/tools"), ("PUT", "/api/tools/{name}/state")]


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"), EXAMPLES, ids=lambda part: str(part)[:40]
)
def test_an_example_of_the_specification_is_answered_in_its_shape(
    daemon, method, path, body, answer
):
    """Issue 4, Shows: taken from the document when the test runs."""
    status, found = daemon.http(path.replace("{name}", "gpio"), body, method=method)
    assert status == 200
    assert answer is None or shaped(found, answer), (found, answer)


def test_rows_of_tools_have_the_values_that_the_specification_names(daemon):
    """P: statuses in a comment of the example; contract, section 6: reason codes."""
    line = re.search(r'"status": "enabled",  // (.*)', SPECIFICATION)[1]
    reasons = {
        "", "requires_linux", "requires_device", "requires_skills", "requires_subagent",
        "requires_mcp_discovery", "requires_runtime", "requires_binary", "requires_config",
        "reserved_name", "shadowed", "invalid",
    }  # fmt: skip
    for row in daemon.http("/api/tools")[1]["tools"]:
        assert row["status"] in line.split(", ")
        assert row["reason_code"] in reasons
        assert bool(row["reason_code"]) == (row["status"] == "blocked")


def tables():
    """Name, category and config key of each tool in the tables of "Available Tools"."""
    section = SPECIFICATION.split("## Available Tools")[1].split("## Backend API")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| (\w+) \| `([\w.]+)`", section, re.MULTILINE)
    return {name: (category, key) for name, category, key in rows}


def test_tools_have_the_category_and_key_of_the_specification(daemon):
    """P, Available Tools, for each that is there."""
    told = tables()
    rows = {row["name"]: row for row in daemon.http("/api/tools")[1]["tools"]}
    known = told.keys() & rows.keys()
    assert {"i2c", "tool_search_tool_regex", "tool_search_tool_bm25"} <= known
    assert {n: (rows[n]["category"], rows[n]["config_key"]) for n in known} == {
        n: told[n] for n in known
    }


def test_the_configuration_of_the_specification_is_one(tmp_path):
    """P, Configuration: keys of `tools` keep their names; JSON is YAML."""
    section = SPECIFICATION.split("\n## Configuration\n")[1]
    text = re.search(r"```json\n(.*?)```", section, re.DOTALL)[1]
    loaded = settings.parse(text, str(tmp_path / "edged.yaml"))
    assert loaded.is_on("mcp.discovery.use_regex")
    assert not loaded.is_on("mcp.discovery.use_bm25")
    assert loaded.tools["read_file"].enabled is True


def test_a_switch_holds_at_once_and_after_a_restart_and_no_file_of_the_user_changes(serving):
    """P fault #1941: the configuration was wiped; ours is never written, switches are kept."""
    with serving(config=f"# mine\n{CONFIG}") as daemon:
        file = daemon.folder / "edged.yaml"
        before = file.read_bytes(), file.stat().st_mtime_ns
        path = "/api/tools/echo/state"
        assert daemon.http(path, {"enabled": False}, method="PUT") == (200, {"status": "ok"})
        assert daemon.http("/api/tools/echo/call", {})[0] == 409
        # One of a version to come, or of a tool that was taken away for a while.
        kept = daemon.data / "state" / "tool-switches.json"
        daemon.stop()
        kept.write_text('{"echo": false, "of_tomorrow": true}')
        daemon.start()
        status, refused = daemon.http("/api/tools/echo/call", {})
        assert (status, refused["code"]) == (409, "unavailable")
        assert daemon.http(path, {"enabled": True}, method="PUT")[0] == 200
        assert json.loads(kept.read_text()) == {"echo": True, "of_tomorrow": True}
        assert json.loads((kept.parent / "tool-switches.json.previous").read_text())
        assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_tools_of_hardware_that_is_not_there_are_not_offered(serving):
    """P fault #1184: blocked, with the remedy, and in no definition."""
    with serving() as daemon:
        rows = {row["name"]: row for row in daemon.http("/api/tools")[1]["tools"]}
        lacking = {n for n in ("i2c", "spi", "onewire") if rows[n]["status"] == "blocked"}
        told = {tool["name"] for tool in daemon.http("/api/tools?format=mcp")[1]["tools"]}
        assert not lacking & told
        for name in lacking:
            assert rows[name]["reason_code"] == "requires_device"
            assert rows[name]["problem"]


def test_a_parameter_that_is_none_is_refused(daemon):
    """A misspelt one would be passed over in silence."""
    status, refused = daemon.http("/api/log?limt=5")
    assert status == 400
    assert refused["faults"] == [{"path": "limt", "reason": "is no parameter; it takes: limit"}]


@pytest.mark.timeout(300)
def test_no_answer_is_undocumented_or_the_daemons_own_fault(daemon):
    """Issue 4, Shows: a slice of `make bench`'s 10,000 cases."""
    fuzzed = api.Api(daemon.url, daemon.token, api.agent_token(daemon.socket))
    with contextlib.closing(fuzzed):
        fuzzed.prepare()
        api.feed(fuzzed, CASES, tools=False)
    assert not fuzzed.faults, "\n\n".join(fuzzed.faults.values())
    assert fuzzed.statuses.total() >= CASES
    answered = {status for _, status in fuzzed.statuses}
    assert {200, 400, 403, 404} <= answered
