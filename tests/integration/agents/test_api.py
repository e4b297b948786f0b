"""Agents through every door, as the specification's section "Agent Management API" has them."""

import json
import re
from pathlib import Path

import pytest

from edged.errors import EdgedError, NotFoundError
from edged.transports._routes import ROUTES

ROOT = Path(__file__).parents[3]
SPECIFICATION = (ROOT / "tests/data/tools-api.md").read_text()
SECTION = SPECIFICATION.split("\n## Agent Management API\n")[1]
FILE = re.search(r"```markdown\n(.*?)```", SECTION, re.DOTALL)[1]
TABLE = re.findall(r"^\| (GET|POST|PUT|DELETE) \| `([^`?]+)\S*` \|", SECTION, re.MULTILINE)
TYPES = {"string": str, "string[]": list, '"enabled" | "disabled"': str}
PROMPT = 'You watch.\r\n\r\n---\nSay `---` and: "so".\n\n'


def fields(interface):
    """Names of an interface of the document with their types, and those that may be absent."""
    body = re.search(rf"interface {interface} \{{\n(.*?)\}}", SECTION, re.DOTALL)[1]
    rows = re.findall(r"^\s+(\w+)(\??): (.*)$", body, re.MULTILINE)
    return {n: TYPES[kind] for n, _, kind in rows}, {n for n, optional, _ in rows if optional}


AGENT, _ = fields("Agent")
CREATION, OPTIONAL = fields("AgentCreateRequest")


def is_agent(value):
    return {n: type(one) for n, one in value.items()} == AGENT


@pytest.fixture(scope="module")
def daemon(serving):
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def token(daemon):
    """An agent's, of the same user."""
    return daemon.ask("edged/token", action="add", name="agent", role="agent")["token"]


@pytest.fixture
def clean(daemon):
    """Nothing but what came with the daemon, before and after."""
    yield daemon
    for agent in daemon.http("/api/agents")[1]["agents"]:
        if agent["slug"] != "board-watcher":
            daemon.http(f"/api/agent/delete?slug={agent['slug']}", method="DELETE")
    for broken in (daemon.data / "local" / "agents").glob("*.md"):
        if broken.name != "board-watcher.md":
            broken.unlink()


def create(daemon, **more):
    facts = {"name": "Watcher", "system_prompt": PROMPT, "model": "small"} | more
    return daemon.http("/api/agent/create", facts)


def test_every_endpoint_of_the_document_is_one():
    assert len(TABLE) == 6
    assert set(TABLE) <= {(route.method, route.path) for route in ROUTES}
    assert len(AGENT) == 9
    assert {"description", "tool_permissions"} == OPTIONAL


def test_an_agent_is_made_read_changed_and_removed(clean):
    """The document's shapes; contract, section 6, for the statuses."""
    given = dict.fromkeys(CREATION, "text") | {"name": "Bot 2.0", "tool_permissions": ["sensor"]}
    status, made = clean.http("/api/agent/create", given)
    assert (status, is_agent(made)) == (201, True)
    assert {name: made[name] for name in given} == given
    assert (made["slug"], made["status"]) == ("bot-2-0", "enabled")
    assert clean.http("/api/agent?slug=bot-2-0") == (200, made)
    status, listed = clean.http("/api/agents")
    assert status == 200
    assert all(map(is_agent, listed["agents"]))
    assert [one["slug"] for one in listed["agents"]] == ["board-watcher", "bot-2-0"]
    change = {"name": "Bot 3", "status": "disabled"}
    status, changed = clean.http("/api/agent/update?slug=bot-2-0", change, method="PUT")
    assert (status, is_agent(changed)) == (200, True)
    assert changed == {**made, **change, "updated_at": changed["updated_at"]}
    removed = clean.http("/api/agent/delete?slug=bot-2-0", method="DELETE")
    assert removed == (200, {"status": "ok"})
    assert clean.http("/api/agent?slug=bot-2-0")[0] == 404


def test_what_may_be_absent_is_absent_and_a_prompt_is_kept_to_the_byte(clean):
    """picoclaw.md, section 14: prompts were stored twice, with their lines folded."""
    status, made = create(clean)
    assert (status, made["description"], made["tool_permissions"]) == (201, "", [])
    assert clean.http("/api/agent?slug=watcher")[1]["system_prompt"] == PROMPT


def test_the_file_of_the_document_is_imported(clean):
    """picoclaw.md, section 14: its front matter was never read."""
    status, made = clean.http("/api/agent/import", {"content": FILE})
    assert (status, is_agent(made)) == (201, True)
    assert (made["slug"], made["model"]) == ("researcher", "claude-3-5-sonnet")
    assert made["description"] == "Research assistant agent"
    assert made["system_prompt"] == FILE.rpartition("---\n\n")[2].removesuffix("\n")
    assert clean.http("/api/agent/import", {"content": FILE})[0] == 409


@pytest.mark.parametrize("absent", sorted(CREATION.keys() - OPTIONAL))
def test_what_is_required_is_asked_for(clean, absent):
    """picoclaw.md, section 14: one of its two handlers took an agent without a name."""
    given = {"name": "Watcher", "system_prompt": "You watch.", "model": "small"}
    del given[absent]
    status, refused = clean.http("/api/agent/create", given)
    assert (status, refused["code"]) == (400, "invalid_arguments")
    assert refused["faults"] == [{"path": absent, "reason": "is required"}]


def test_a_field_that_no_agent_has_is_named(clean):
    """Contract, section 6: each fault with its path."""
    status, refused = create(clean, modle="x")
    assert status == 400
    assert [fault["path"] for fault in refused["faults"]] == ["modle"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/api/agent/create", {"name": "a", "prompt": "x"}, 400, "prompt"),
        ("POST", "/api/agent/create", [], 400, "object"),
        ("POST", "/api/agent/import", {"content": ""}, 400, "is empty"),
        ("POST", "/api/agent/import", {"content": "You watch."}, 400, "first line must be"),
        ("POST", "/api/agent/import", {}, 400, "content"),
        ("PUT", "/api/agent/update?slug=nobody", {"name": "x"}, 404, "no agent 'nobody'"),
        ("PUT", "/api/agent/update?slug=board-watcher", {"status": "on"}, 400, "status"),
        ("PUT", "/api/agent/update", {"name": "x"}, 400, "slug"),
        ("DELETE", "/api/agent/delete?slug=nobody", None, 404, "no agent 'nobody'"),
        ("DELETE", "/api/agent/delete", None, 400, "slug"),
        ("GET", "/api/agent?slug=nobody", None, 404, "no agent 'nobody'"),
        ("GET", "/api/agent", None, 400, "slug"),
        ("GET", "/api/agent?slug=..%2F..%2Ftoken", None, 400, "slug"),
        ("DELETE", "/api/agent/delete?slug=..%2Ftools%2Fhello", None, 400, "slug"),
        ("GET", "/api/subagents/nobody", None, 404, "no subagent"),
        ("POST", "/api/subagents/nobody/stop", None, 404, "no subagent"),
    ],
)
def test_what_makes_no_sense_is_refused(clean, method, path, body, status, words):
    """picoclaw.md, section 14: 500 for what was unknown, and slugs that left the directory."""
    found, refused = clean.http(path, body, method=method)
    assert (found, refused["status"]) == (status, status)
    assert words in refused["detail"]


def test_a_name_that_is_taken_is_refused_and_replaces_nothing(clean):
    """picoclaw.md, section 14: "Bot 2.0", "My_Agent" and "Café" were one file."""
    assert create(clean, name="Café")[0] == 201
    status, refused = create(clean, name="cafe")
    assert (status, refused["code"]) == (409, "exists")
    assert "named 'Café', already" in refused["detail"]
    for name in ("Bot 2.0", "My_Agent"):
        assert create(clean, name=name)[0] == 201
    slugs = [one["slug"] for one in clean.http("/api/agents")[1]["agents"]]
    assert slugs == ["board-watcher", "bot-2-0", "cafe", "my-agent"]


def test_a_name_is_text_and_no_yaml(clean):
    """picoclaw.md, section 14: a name with a colon or a quote became front matter."""
    name = "a: b # \"c\" 'd' {e} [f] *g &h !i %j @k `l` on"
    assert create(clean, name=name, description="no: 010")[1]["name"] == name
    slug = clean.http("/api/agents")[1]["agents"][0]["slug"]
    found = clean.http(f"/api/agent?slug={slug}")[1]
    assert (found["name"], found["description"]) == (name, "no: 010")
    assert create(clean, name="x\nmodel: y")[0] == 400


def test_a_file_that_is_broken_is_told_of_and_kept(clean):
    path = clean.data / "local" / "agents" / "broken.md"
    clean.http("/api/agents")
    path.write_text("---\nname: broken\nmodle: x\n---\n\nHi")
    listed = clean.http("/api/agents")[1]
    assert [Path(one["file"]).name for one in listed["problems"]] == ["broken.md"]
    assert "did you mean 'model'?" in listed["problems"][0]["reason"]
    status, refused = clean.http("/api/agent?slug=broken")
    assert status == 400
    assert "broken.md:3: modle" in refused["detail"]
    assert create(clean, name="broken")[0] == 409
    assert "modle" in path.read_text()


ODD = [
    "tool_permissions: there is no tool 'sensr': did you mean 'sensor'?",
    "tool_permissions: there is no tool 'nosuchtool': edged tools --all lists them",
    "tool_permissions: no tool's name begins with 'zz_'",
]


def test_a_tool_that_is_not_there_is_told_of_wherever_the_agent_is(clean):
    """A misspelt permission would else be an agent without hands, and nobody would know."""
    wanted = ["sensr", "nosuchtool", "zz_*", "sensor", "gpi*", "*", "mcp_files_read", "mcp_*"]
    made = create(clean, tool_permissions=wanted)[1]
    assert made["warnings"] == ODD
    assert clean.http("/api/agent?slug=watcher")[1] == made
    assert made in clean.http("/api/agents")[1]["agents"]
    off = clean.http("/api/agent/update?slug=watcher", {"status": "disabled"}, method="PUT")
    assert off[1]["warnings"] == ODD
    file = "---\nname: w\ntool_permissions: [sensr]\n---\nHi"
    assert clean.ask("edged/agents", action="import", content=file)["warnings"] == ODD[:1]
    for words in (("show", "w"), ("list",), ("disable", "w")):
        done = clean.edged("agents", *words, "--socket", clean.socket)
        assert done.returncode == 0
        assert f"agent w: {ODD[0]}" in done.stderr
    (clean.data / "local" / "agents" / "broken.md").write_text("---\nname: [\n---\nHi")
    done = clean.edged("doctor", "--socket", clean.socket)
    told = " ".join(done.stdout.split())
    assert f"agent w: {ODD[0]}" in told
    assert re.search(r"broken\.md: line \d: ", told)


def test_agents_look_and_owners_change(clean, token):
    """Contract, section 13: agents are written by owners."""
    create(clean)
    assert clean.http("/api/agents", token=token)[0] == 200
    assert clean.http("/api/agent?slug=watcher", token=token)[0] == 200
    for method, path, body in (
        ("POST", "/api/agent/create", {"name": "a", "system_prompt": "b", "model": "c"}),
        ("POST", "/api/agent/import", {"content": FILE}),
        ("PUT", "/api/agent/update?slug=watcher", {"name": "x"}),
        ("DELETE", "/api/agent/delete?slug=watcher", None),
    ):
        status, refused = clean.http(path, body, method=method, token=token)
        assert (status, refused["code"]) == (403, "denied"), path
        assert clean.http(path, body, method=method, token="none")[0] == 401, path
    assert clean.http("/api/agent?slug=watcher")[1]["name"] == "Watcher"


def test_the_socket_has_the_same(clean):
    given = {"name": "Watcher", "system_prompt": PROMPT, "model": "small"}
    made = clean.ask("edged/agents", action="create", agent=given)
    assert is_agent(made)
    assert clean.ask("edged/agents", action="show", slug="watcher") == made
    changed = clean.ask("edged/agents", action="update", slug="watcher", agent={"name": "W"})
    assert changed["name"] == "W"
    off = clean.ask("edged/agents", action="disable", slug="watcher")
    assert off["status"] == "disabled"
    assert clean.ask("edged/agents", action="import", content=FILE)["slug"] == "researcher"
    assert clean.ask("edged/agents", action="remove", slug="watcher") == {"status": "ok"}
    slugs = [one["slug"] for one in clean.ask("edged/agents")["agents"]]
    assert slugs == ["board-watcher", "researcher"]
    assert clean.ask("edged/agents", action="tasks") == {"tasks": []}
    with pytest.raises(NotFoundError):
        clean.ask("edged/agents", action="task", task_id="none")
    with pytest.raises(EdgedError, match="params: action: 'x' is none of create, "):
        clean.ask("edged/agents", action="x")
    with pytest.raises(EdgedError, match="agent: system_prompt: is required"):
        clean.ask("edged/agents", action="create", agent={"name": "x"})
    with pytest.raises(EdgedError, match="status: 'on' is none of disabled, enabled"):
        clean.ask("edged/agents", action="update", slug="researcher", agent={"status": "on"})


@pytest.mark.parametrize("door", ["socket", "url"])
def test_the_command_line_has_the_same(clean, door):
    def run(*words, stdin="", code=0):
        where = ["--socket", clean.socket]
        if door == "url":
            file = clean.folder / "token"
            file.write_text(clean.token)
            where = ["--url", clean.url, "--token-file", str(file)]
        done = clean.edged("agents", *words, *where, stdin=stdin)
        assert done.returncode == code, done.stderr
        return done.stdout if not code else done.stderr

    assert run("import", "-", stdin=FILE).startswith("researcher: imported")
    assert "researcher" in run()
    listed = json.loads(run("--json"))
    assert [one["slug"] for one in listed["agents"]] == ["board-watcher", "researcher"]
    shown = run("show", "researcher")
    assert "claude-3-5-sonnet" in shown
    assert "specialized in finding" in shown
    assert is_agent(json.loads(run("show", "researcher", "--json")))
    assert run("disable", "researcher") == "researcher: disabled\n"
    assert run("enable", "researcher") == "researcher: enabled\n"
    assert run("import", "-", stdin=FILE, code=1).startswith("edged: there is an agent")
    assert run("remove", "researcher") == "researcher: removed\n"
    assert run("show", "researcher", code=1) == (
        "edged: no agent 'researcher': edged agents lists them\n"
    )
    odd = clean.folder / "w.md"
    odd.write_text("---\nname: w\nmodle: x\n---\nHi")
    told = run("import", str(odd), code=1)
    assert told == f"edged: {odd}:3: modle: unknown key; did you mean 'model'?\n"
    odd.write_text("---\nname: w\nmodle: x\nslg: y\n---\nHi")
    told = run("import", str(odd), code=1)
    assert "content" not in told
    assert f"{odd}:4: slg" in told
    told = run("import", "-", stdin="---\nname: w\n---\n", code=1)
    assert told.startswith("edged: standard input:4: the prompt below the front matter is empty")
    assert run("tasks") == "no tasks: edged agents run SLUG TASK begins one\n"
    assert run("task", "x", code=1).startswith("edged: no subagent 'x': edged agents tasks")
    assert "requires_subagent" in run("run", "board-watcher", "Is", "all", "well?", code=1)


def test_who_may_not_change_agents_is_told_so(clean, token):
    """Contract, section 4: agents are no owners."""
    file = clean.folder / "agent-token"
    file.write_text(token)
    done = clean.edged(
        "agents", "remove", "board-watcher", "--url", clean.url, "--token-file", str(file)
    )
    assert done.returncode == 1
    assert "only an owner may change agents" in done.stderr
