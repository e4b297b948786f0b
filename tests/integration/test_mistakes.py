"""The mistakes that the TOOL.md specification lists: each is told, with what to do.

Some tell the agent, in the result of the call; some tell the author, by
`edged check-tool` and `edged sync`; most tell both.
"""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ENTRY = {"typescript": "index.ts", "python": "index.py", "bash": "index.sh"}
SHAPE = {
    "typescript": "return text or { content: [{ type: 'text', text: '...' }] }",
    "python": 'return text or {"content": [{"type": "text", "text": "..."}]}',
}


class Mistake(NamedTuple):
    """A tool as someone wrote it.

    Attributes:
        call: what the result of a call must say.
        check: line of the entry file and what `edged check-tool` must say there.
        severity: of that finding; empty where only running the tool can tell.
    """

    language: str
    source: str
    call: tuple[str, ...]
    check: tuple[int, str] = (0, "")
    severity: str = "error"


MISTAKES = {
    # "No execute export": class patterns, command-line entry points, module.exports.
    "ts_class": Mistake(
        "typescript",
        "export class MyTool {\n  async run(): Promise<string> { return 'result'; }\n}\n",
        ("index.ts has no export `execute`", "A class (`MyTool`) is not called"),
        (1, "no exported `execute`; the methods of a class are not looked for"),
    ),
    "ts_entry_point": Mistake(
        "typescript",
        "function main() { console.log('result'); }\n\nif (require.main === module) { main(); }\n",
        ("index.ts has no export `execute`", "export async function execute(toolCallId, params"),
        (3, "a command-line entry point never runs"),
    ),
    "ts_argv": Mistake(
        "typescript",
        "console.log(`Hello, ${process.argv[2]}!`);\n",
        ("index.ts has no export `execute`", "A program that reads `process.argv` is not a tool"),
        (1, "no exported `execute`; a command-line entry point never runs"),
    ),
    "ts_module_exports": Mistake(
        "typescript",
        "async function execute() { return 'result'; }\n\nmodule.exports = { execute };\n",
        ("index.ts has no export `execute`", "`module.exports` is not read: use `export`"),
        (3, "`module.exports` is not read"),
    ),
    "ts_default_export": Mistake(
        "typescript",
        "export default async function execute() { return 'result'; }\n",
        ("index.ts has no export `execute`", "A default export is not read"),
        (1, "no exported `execute`; a default export is not a named one"),
    ),
    "py_class": Mistake(
        "python",
        "class MyTool:\n    def run(self):\n        return 'result'\n",
        ("index.py has no function `execute`", "A class (`MyTool`) is not called"),
        (0, "no `execute` at the top level"),
    ),
    "py_entry_point": Mistake(
        "python",
        "def main():\n    print('result')\n\n\nif __name__ == '__main__':\n    main()\n",
        ("index.py has no function `execute`", '`if __name__ == "__main__"` do not run in a tool'),
        (0, "no `execute` at the top level"),
    ),
    "py_few_parameters": Mistake(
        "python",
        "def execute(params):\n    return 'result'\n",
        ("`execute` of index.py must accept (tool_call_id, params)",),
        (1, "`execute` must take the call's id and its parameters"),
    ),
    # "console.log instead of return".
    "ts_console_log": Mistake(
        "typescript",
        "export async function execute(_id: string, params: object) {\n"
        "  console.log('the result');\n}\n",
        ("`execute` returned nothing", SHAPE["typescript"], "It wrote:\nthe result"),
        (2, "`console.log` is the only output, and the agent never sees it"),
        "warning",
    ),
    "py_print": Mistake(
        "python",
        "def execute(tool_call_id, params):\n    print('the result')\n",
        (
            "`execute` returned nothing",
            SHAPE["python"],
            "It wrote:\nthe result",
        ),
        (2, "`print` is the only output, and the agent never sees it"),
        "warning",
    ),
    "sh_stderr": Mistake(
        "bash",
        "echo 'the cable is not plugged in' >&2\nexit 3\n",
        ("the cable is not plugged in", "ended with exit status 3"),
        severity="",
    ),
    # "Using Bun APIs": file, write and sleep.
    **{
        f"ts_bun_{name}": Mistake(
            "typescript",
            f"export async function execute() {{\n  await Bun.{call};\n  return 'result';\n}}\n",
            (
                "ReferenceError: Bun is not defined",
                f"/officer/user/tools/ts_bun_{name}/index.ts:2:",
                "Tools run on Node.js: use node:fs, setTimeout and node:child_process",
            ),
            (2, "Bun's functions are not there: tools run on Node.js"),
        )
        for name, call in {
            "file": "file('/tmp/a').text()",
            "write": "write('/tmp/a', 'b')",
            "sleep": "sleep(10)",
        }.items()
    },
    # "Throwing instead of returning errors": the message and the line are there to act on.
    "ts_throws": Mistake(
        "typescript",
        "export async function execute() {\n"
        "  throw new Error('API key not found', { cause: new TypeError('no token') });\n}\n",
        (
            "Error: API key not found",
            "/officer/user/tools/ts_throws/index.ts:2:",
            "caused by TypeError: no token",
        ),
        severity="",
    ),
    "ts_rejects": Mistake(
        "typescript",
        "export async function execute() {\n"
        "  Promise.reject(new Error('nobody waits for this'));\n"
        "  await new Promise((done) => setTimeout(done, 1000));\n"
        "  return 'result';\n}\n",
        ("Error: nobody waits for this", "/officer/user/tools/ts_rejects/index.ts:2:"),
        severity="",
    ),
    "py_throws": Mistake(
        "python",
        "async def execute(tool_call_id, params):\n    raise KeyError('API_KEY')\n",
        ("KeyError: 'API_KEY'", "/officer/user/tools/py_throws/index.py:2 in execute"),
        severity="",
    ),
    "sh_fails": Mistake(
        "bash",
        "set -e\nno-such-program --now\necho done\n",
        ("no-such-program: command not found", "ended with exit status 127"),
        severity="",
    ),
    # What else does not run, in each language.
    "ts_enum": Mistake(
        "typescript",
        "enum Unit { Celsius, Kelvin }\nexport async function execute() { return 'result'; }\n",
        ("TypeScript enum is not supported", "write enums as const objects"),
        (1, "`enum` is more than a type"),
    ),
    "py_syntax": Mistake(
        "python",
        "def execute(tool_call_id, params):\n    return 'result\n",
        ("SyntaxError: unterminated string literal", "line 2"),
        (2, "not Python: unterminated string literal"),
    ),
    "sh_syntax": Mistake(
        "bash",
        "if true; then\n  echo result\n",
        ("syntax error: unexpected end of file", "/officer/user/tools/sh_syntax/index.sh"),
        (3, "not bash: syntax error: unexpected end of file"),
    ),
}

INPUTS = (
    "version: 1\ninputs:\n  name:\n    type: string\n    description: Whom.\n    optional: true\n"
)


def manifest(name, language="", more="version: 1\n"):
    declared = f"language: {language}\n" if language else ""
    return f"---\nname: {name}\ndescription: A tool.\n{declared}{more}---\n\n# It\n"


GOOD = "export async function execute(_id: string, params: any) { return String(params.list); }\n"
OTHERS = {
    "no_manifest": {"index.ts": GOOD},
    "no_entry": {"TOOL.md": manifest("no_entry")},
    "wrong_entry": {"TOOL.md": manifest("wrong_entry"), "index.py": "def execute(i, p): ...\n"},
    "no_version": {"TOOL.md": manifest("no_version", more=""), "index.ts": GOOD},
    "list_input": {
        "TOOL.md": manifest(
            "list_input",
            more="version: 1\ninputs:\n  list:\n    type: array\n    description: Items.\n",
        ),
        "index.ts": GOOD,
    },
    "clutter": {
        "TOOL.md": manifest("clutter"),
        "index.ts": GOOD,
        "package.json": '{"type": "module"}\n',
        "tsconfig.json": "{}\n",
        "node_modules/left/index.js": "",
    },
}


def lay(daemon):
    for name, one in MISTAKES.items():
        files = {"TOOL.md": manifest(name, one.language), ENTRY[one.language]: one.source}
        daemon.lay(name, files)
    for name, files in OTHERS.items():
        daemon.lay(name, files)


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(lay) as running:
        yield running


@pytest.fixture(scope="module")
def findings(daemon):
    """What `edged check-tool` says of every tool, by its directory's name."""
    tools = daemon.data / "local" / "tools"
    done = daemon.edged("check-tool", "--json", *map(str, sorted(tools.iterdir())))
    assert (done.returncode, done.stderr) == (1, "")
    found = {name: [] for name in (*MISTAKES, *OTHERS)}
    for one in json.loads(done.stdout):
        name, _, file = os.path.relpath(one["file"], tools).partition("/")
        found[name].append(
            (one["severity"], file, one["line"], f"{one['reason']}: {one['remedy']}")
        )
    return found


@pytest.mark.parametrize("name", MISTAKES)
def test_agent_is_told_of_the_mistake(daemon, name):
    """Specification, "Common Mistakes", and what is like them in the other languages."""
    result = daemon.call(name)
    assert result.is_error
    for part in MISTAKES[name].call:
        assert part in result.for_llm


@pytest.mark.parametrize("name", [n for n, one in MISTAKES.items() if one.severity])
def test_author_is_told_of_the_mistake(findings, name):
    """Contract, section 2: `edged check-tool` gives file, line, reason and remedy."""
    mistake = MISTAKES[name]
    line, reason = mistake.check
    rows = [row for row in findings[name] if reason in row[3]]
    assert rows != [], findings[name]
    severity, file, found_line, text = rows[0]
    assert (severity, file, found_line) == (mistake.severity, ENTRY[mistake.language], line)
    remedy = text.rpartition(": ")[2]
    assert remedy


@pytest.mark.parametrize(
    ("name", "reason", "remedy"),
    [
        ("no_manifest", "no TOOL.md", "add TOOL.md"),
        ("no_entry", "language: typescript wants index.ts", "add index.ts"),
        ("wrong_entry", "found index.py", "write `language: python`"),
    ],
)
def test_directory_that_lacks_a_file_is_listed_with_its_remedy(
    daemon, findings, name, reason, remedy
):
    """Specification, "File Structure": both are required; here nothing is skipped in silence."""
    rows = {row["name"]: row for row in daemon.ask("edged/tools/state")["tools"]}
    assert (rows[name]["status"], rows[name]["reason_code"]) == ("blocked", "invalid")
    told = daemon.cli("call", name)
    assert told.returncode == 1
    for text in (rows[name]["problem"], told.stderr, str(findings[name])):
        assert reason in text
        assert remedy in text


def test_missing_version_counts_as_0_and_is_warned_of(daemon, findings):
    """Specification, "Fields"."""
    assert daemon.ask("edged/describe", name="no_version")["version"] == 0
    [(severity, file, _, text)] = findings["no_version"]
    assert (severity, file) == ("warning", "TOOL.md")
    assert "version: is missing and counts as 0: write `version: 1`" in text


def test_list_as_an_input_type_is_taken_for_text(daemon, findings):
    """Specification, "Input Types": accept a JSON string and parse it."""
    [(severity, file, line, text)] = findings["list_input"]
    assert (severity, file, line) == ("warning", "TOOL.md", 7)
    assert "array" in text
    assert daemon.call("list_input", list='["a"]').for_llm == '["a"]'
    refused = daemon.call("list_input", list=["a"])
    assert refused.is_error
    assert "list: " in refused.for_llm


def test_files_that_no_tool_needs_do_no_harm(daemon, findings):
    """Specification, "Unnecessary files"."""
    assert daemon.call("clutter").for_llm == "undefined"
    rows = findings["clutter"]
    assert [row[1] for row in rows] == ["node_modules", "package.json", "tsconfig.json"]
    assert {row[0] for row in rows} == {"warning"}


def test_forgotten_version_is_told_by_sync(serving, tmp_path):
    """Specification, "Forgetting to bump version"; contract, section 2, `edged sync`."""
    for part in ("edged", "seed"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    seed = tmp_path / "seed" / "tools" / "hello"

    def row(done):
        assert (done.returncode, done.stderr) == (0, "")
        return next(line for line in done.stdout.splitlines() if line.startswith("hello "))

    with serving(PYTHONPATH=str(tmp_path)) as daemon:
        assert daemon.call("hello", name="Ada").for_llm == "Hello, Ada!"
        assert " keep " in row(daemon.cli("sync"))

        code = (seed / "index.py").read_text()
        (seed / "index.py").write_text(code.replace("Hello", "Good day"))
        told = row(daemon.cli("sync"))
        assert " differs " in told
        assert "same version, other content: raise the version in the seed" in told
        assert daemon.call("hello", name="Ada").for_llm == "Hello, Ada!"

        text = (seed / "TOOL.md").read_text()
        (seed / "TOOL.md").write_text(text.replace("version: 1\n", "version: 2\n"))
        assert " update " in row(daemon.cli("sync", "--dry-run"))
        assert daemon.call("hello", name="Ada").for_llm == "Hello, Ada!"
        assert " update " in row(daemon.cli("sync"))
        assert daemon.call("hello", name="Ada").for_llm == "Good day, Ada!"
        kept = daemon.data / "tools" / ".replaced" / "hello-v1" / "index.py"
        assert kept.read_text() == code


def test_tool_shows_as_it_is_after_every_step_of_its_author(daemon):
    """Contract, section 4: checked by modification time on a list and on a miss."""
    name = "grows"
    source = "def execute(tool_call_id, params):\n    return 'one'\n"
    tools = daemon.data / "local" / "tools"

    def told():
        done = daemon.cli("call", name)
        return done.stdout if done.returncode == 0 else done.stderr

    assert "no tool named 'grows'" in told()
    daemon.lay(name, {"TOOL.md": manifest(name, "python")})
    assert "add index.py" in told()
    daemon.lay(name, {"index.py": source})
    assert told() == "one\n"
    daemon.lay(name, {"index.py": "from lib.part import TEXT\n" + source.replace("'one'", "TEXT")})
    assert "No module named 'lib'" in told()
    daemon.lay(name, {"lib/part.py": "TEXT = 'two'\n"})
    assert told() == "two\n"
    daemon.lay(name, {"lib/part.py": "TEXT = 'three'\n"})
    assert told() == "three\n"
    daemon.lay(name, {"TOOL.md": "---\nname: [\n---\n"})
    assert "grows/TOOL.md:2: not YAML" in told()
    daemon.lay(name, {"TOOL.md": manifest(name, "python")})
    assert told() == "three\n"
    (tools / name).rename(tools / "moved")
    assert told() == "three\n"
    shutil.rmtree(tools / "moved")
    assert "no tool named 'grows'" in told()


def test_variable_without_a_value_is_named(daemon):
    """README, "Tools": `env:` names variables of the configuration."""
    source = "import os\n\n\ndef execute(i, p):\n    return os.environ['BOARD_KEY']\n"
    more = "version: 1\nenv: [BOARD_KEY]\n"
    daemon.lay("keyed", {"TOOL.md": manifest("keyed", "python", more=more), "index.py": source})
    told = daemon.cli("call", "keyed").stderr.splitlines()
    assert told[0].startswith("KeyError: 'BOARD_KEY'")
    line = "set tools: {keyed: {env: {BOARD_KEY: …}}} in edged.yaml"
    assert told[-1] == f"BOARD_KEY has no value: {line}"


def test_recursion_shows_its_ends_only(daemon):
    """Ten frames tell as much as a thousand."""
    source = "def execute(i, p):\n    return execute(i, p)\n"
    daemon.lay("deep", {"TOOL.md": manifest("deep", "python"), "index.py": source})
    text = daemon.cli("call", "deep").stderr
    assert "RecursionError" in text
    assert text.count("in execute") == 10


def test_failure_says_which_file_is_to_be_mended(daemon):
    """A path inside of the sandbox is nothing that an editor opens."""
    tool = daemon.data / "local" / "tools" / "py_throws"
    text = daemon.call("py_throws").for_llm
    assert text.endswith(f"/officer/user/tools/py_throws is {tool}")


def test_script_with_foreign_line_ends_is_told_at_the_call(daemon):
    source = "set -euo pipefail\r\necho done\r\n"
    place = daemon.lay("sh_crlf", {"TOOL.md": manifest("sh_crlf", "bash"), "index.sh": source})
    told = daemon.cli("call", "sh_crlf").stderr.splitlines()
    assert told[-1] == f"index.sh has CRLF line ends: sed -i 's/\\r$//' {place}/index.sh"


def test_result_of_another_shape_is_told_with_the_right_one(daemon):
    source = "def execute(i, p):\n    return {'content': [{'type': 'image'}]}\n"
    daemon.lay("py_shape", {"TOOL.md": manifest("py_shape", "python"), "index.py": source})
    text = daemon.call("py_shape").for_llm
    assert text.startswith("the tool's result is not one: ")
    assert "{type: image, data: BASE64, mimeType: …}" in text


def test_misspelt_key_is_told_wherever_the_tool_is_asked_for(daemon):
    """`langauge: python` leaves the tool without the entry file of the default language."""
    more = "version: 1\nlangauge: python\n"
    daemon.lay("odd_key", {"TOOL.md": manifest("odd_key", more=more), "index.py": "x = 1\n"})
    for words in (["call", "odd_key"], ["describe", "odd_key"], ["tools", "--all"]):
        done = daemon.cli(*words)
        told = " ".join((done.stdout + done.stderr).split())
        assert "langauge: unknown key; did you mean 'language'?" in told, words
        assert "edged check-tool" in told
