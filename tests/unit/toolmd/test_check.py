"""`edged check-tool`: what is found without running a tool."""

import os
import pathlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import runtimes
from edged.runtimes import Runtime
from edged.sandbox.profile import Bind
from edged.toolmd.check import SOURCE_MAX, Finding, _blanked, check

Path = pathlib.Path

# specification, "Quick Start"
HELLO = """\
type ToolResult = {
  content: Array<{ type: string; text: string }>;
  isError?: boolean;
};

type Params = {
  name: string;
};

export async function execute(
  _toolCallId: string,
  params: Params,
): Promise<ToolResult> {
  return { content: [{ type: 'text', text: `Hello, ${params.name}!` }] };
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tool's directory, of the tool's name."""
    made = tmp_path / "a"
    made.mkdir()
    return made


GOOD = "def execute(tool_call_id, params):\n    return 'x'\n"


def tool(
    root: Path, entry: str, code: str | bytes, *, version: str = "version: 1\n", more: str = ""
) -> Path:
    language = {"ts": "typescript", "js": "typescript", "mjs": "typescript"}
    names = {"py": "python", "sh": "bash"}
    kind = entry.rpartition(".")[2]
    (root / "TOOL.md").write_text(
        f"---\nname: {root.name}\ndescription: x\n{version}"
        f"language: {(language | names)[kind]}\n{more}---\n# A\n"
    )
    (root / entry).write_bytes(code if isinstance(code, bytes) else code.encode())
    return root


def found(directory: Path) -> list[tuple[str, str, int, str]]:
    result = check(str(directory))
    assert all(one.reason for one in result)
    return [(one.severity, os.path.basename(one.file), one.line, one.reason) for one in result]


def only(directory: Path) -> Finding:
    (result,) = check(str(directory))
    return result


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("index.ts", HELLO),
        (
            "index.ts",
            "export const execute = async (_id: string, p: { a: string }) => ({ content: [] });",
        ),
        ("index.mjs", "async function execute() { return 1 }\nexport { execute };"),
        ("index.js", "const a = 1, run = () => 1\nexport { a, run as execute }"),
        ("index.js", "export { execute } from './impl.js'"),
        ("index.js", "export * from './impl.js'"),
        ("index.mjs", "export async function* execute() { yield 1 }"),
        ("index.ts", "declare enum A { B }\nexport function execute() { return 1 }"),
        ("index.py", "def execute(tool_call_id, params):\n    return 'x'\n"),
        (
            "index.py",
            "async def execute(a, b, signal=None, on_update=None):\n    print(1)\n    return 'x'\n",
        ),
        ("index.py", "def execute(*args):\n    return 'x'\n"),
        ("index.py", "from impl import run as execute\n"),
        ("index.py", "import execute\n"),
        ("index.py", "execute = lambda a, b: 'x'\n"),
        ("index.py", "def execute(a, b):\n    return '\\d'\n"),
        ("index.sh", 'echo "$INPUT_NAME"\n'),
        ("index.sh", "cat <<EOF | jq .\n{}\nEOF\n"),
    ],
)
def test_a_good_tool_has_no_findings(root: Path, entry: str, code: str) -> None:
    """Specification, "index.ts Format"; contract, section 10."""
    assert found(tool(root, entry, code)) == []


@pytest.mark.parametrize(
    ("entry", "code", "line", "words"),
    [
        # specification, "Common Mistakes"
        ("index.ts", "\nexport class MyTool { async run() { return 1 } }", 2, "a class"),
        ("index.ts", "\nclass MyTool { async run() { return 1 } }", 2, "methods of a class"),
        ("index.js", "// x\nif (require.main === module) { main(); }", 2, "entry point never runs"),
        ("index.js", "const a = process.argv[2];", 1, "command-line entry point"),
        ("index.js", "\nmodule.exports = { execute };", 2, "`module.exports` is not read"),
        ("index.js", "exports.execute = () => 1", 1, "`module.exports` is not read"),
        ("index.js", "export default async function execute() { return 1 }", 1, "default export"),
        ("index.js", "\nasync function execute() { return 1 }", 2, "without `export`"),
        ("index.js", "// export function execute() {}", 0, "no exported `execute`"),
        ("index.js", "const a = 'export function execute() {}'", 0, "no exported `execute`"),
        ("index.js", "export { execute as run }", 0, "no exported `execute`"),
        ("index.ts", HELLO + "Bun.write('a', 'b');", 16, "Bun's functions"),
        ("index.ts", HELLO + "await Bun . sleep(3);", 16, "Bun's functions"),
        ("index.ts", "import { Database } from 'bun:sqlite';\n" + HELLO, 1, "Bun's modules"),
        ("index.js", 'export * from "x";\nimport("bun")', 2, "Bun's modules"),
        # Node.js, modules, TypeScript support: types are only stripped
        ("index.ts", HELLO + "enum Mode { A, B }", 16, "`enum` is more than a type"),
        ("index.ts", HELLO + "export const enum Mode { A }", 16, "`enum` is more than a type"),
        ("index.ts", HELLO + "namespace A.B { export const c = 1 }", 16, "`namespace` is more"),
        ("index.ts", HELLO + "class A {\n constructor(private readonly a: string) {}\n}", 17, "parameter property"),
        ("index.ts", HELLO + "import fs = require('fs')", 16, "`import x = …`"),
        ("index.ts", HELLO + "const a: string = ;", 16, "not TypeScript: Expression expected"),
        ("index.ts", HELLO + "let a = 1;\nlet a = 2;", 17, "Identifier 'a' has already been"),
        ("index.mjs", "export const execute = 1;\nconst b = ;", 2, "not JavaScript: Unexpected"),
        ("index.js", "export function execute() {\n  return 1\n", 3, "not JavaScript: Unexpected end"),
        ("index.py", "\ndef run(a, b):\n    return 1\n", 0, "no `execute`"),
        ("index.py", "class A:\n    def execute(self, a, b):\n        return 1\n", 0, "no `execute`"),
        ("index.py", "\ndef execute(params):\n    return 1\n", 2, "must take the call's id"),
        ("index.py", "x = 1\ndef execute(a, b)\n    return 1\n", 2, "not Python: expected ':'"),
        ("index.py", "def execute(a, b):\n  return 1\nreturn 2\n", 3, "'return' outside function"),
        ("index.py", b"def execute(a, b):\n    return '\0'\n", 0, "not Python"),
        ("index.py", "a = " + "-" * 20_000 + "1\n", 0, "not Python"),
        ("index.py", b"def execute(a, b):\n    return '\xff'\n", 2, "not UTF-8"),
        ("index.sh", "echo a\nif true; then\n", 3, "not bash: syntax error"),
        ("index.sh", "echo a\necho b\r\n", 2, "CRLF"),
        ("index.sh", b"\xe9", 1, "not UTF-8"),
    ],
)  # fmt: skip
def test_what_keeps_a_tool_from_working_is_an_error(
    root: Path, entry: str, code: str | bytes, line: int, words: str
) -> None:
    """Specification, "Common Mistakes", and contract, section 10."""
    errors = [one for one in check(str(tool(root, entry, code))) if one.severity == "error"]
    assert any(one.line == line and words in one.reason for one in errors), errors
    assert all(one.remedy and one.file == f"{root}/{entry}" for one in errors)


def test_a_module_beside_the_entry_is_looked_at_too(root: Path) -> None:
    """README: a module beside it is used at its next call."""
    tool(root, "index.py", "import helper\n\n\ndef execute(a, b):\n    return helper.X\n")
    (root / "helper.py").write_text("Y = 1\nX = (\n")
    (root / "good.py").write_text("X = 1\n")
    errors = [one for one in check(str(root)) if one.severity == "error"]
    assert [(one.file, one.line) for one in errors] == [(f"{root}/helper.py", 2)]
    assert errors[0].reason == "not Python: '(' was never closed"
    (root / "helper.py").unlink()
    (root / "helper.py").symlink_to("/etc/hostname")
    (error,) = [one for one in check(str(root)) if one.severity == "error"]
    assert "leads out of" in error.reason


@pytest.mark.parametrize(
    ("entry", "code", "line", "words"),
    [
        (
            "index.ts",
            "export async function execute(_id: string, params: object) {\n  console.log('result');\n  return;\n}",
            2,
            "`console.log` is the only output",
        ),
        ("index.py", "def execute(a, b):\n    print('x')\n    return\n", 2, "`print` is the only"),
    ],
)
def test_output_that_nobody_sees_is_a_warning(
    root: Path, entry: str, code: str, line: int, words: str
) -> None:
    """Specification, "Common Mistakes": agent never sees this."""
    one = only(tool(root, entry, code))
    assert (one.severity, one.line) == ("warning", line)
    assert words in one.reason


def test_log_lines_beside_a_result_are_fine(root: Path) -> None:
    """They are of use to whoever writes the tool."""
    code = "export function execute() {\n  console.log('x');\n  return { content: [] };\n}"
    assert found(tool(root, "index.js", code)) == []


def test_texts_comments_and_patterns_are_no_code(root: Path) -> None:
    """A message about `Bun.write` is no use of it."""
    code = (
        "/* module.exports\n enum A { */ // Bun.file(x)\n"
        "export function execute() {\n"
        "  const a = `Bun.file ${b ? `enum ${'}'} {` : { c: 1 }.c} \\` module.exports ${d}`;\n"
        "  const e = f.replace(/['\"`/]/g, 'require.main \\' Bun.x');\n"
        '  return /`"/.test(a) ? "process.argv" : "from \'bun:sqlite\'";\n'
        "}\n"
    )
    assert found(tool(root, "index.ts", code)) == []
    assert "Bun" in _blanked(code + "Bun.file()")


def test_warnings_of_the_manifest_have_their_line(root: Path) -> None:
    """Specification, "Forgetting to bump version"; contract, section 10, names."""
    one = only(tool(root, "index.ts", HELLO, version=""))
    assert (one.severity, one.line) == ("warning", 2)
    assert one.reason == "version: is missing and counts as 0: write `version: 1`"


def test_faults_of_the_manifest_come_one_by_one(root: Path) -> None:
    """Contract, section 2: file, line, reason, remedy."""
    (root / "TOOL.md").write_text("---\nname: A\nversion: x\ntimeout: 0\n---\n")
    (root / "index.py").write_text("def run(): pass\n")
    (root / "index.sh").write_text("echo\n")
    assert [one[:3] for one in found(root)] == [
        ("error", "TOOL.md", 2),
        ("error", "TOOL.md", 3),
        ("error", "TOOL.md", 4),
        ("error", "index.py", 0),
        ("warning", "TOOL.md", 2),
    ]


def test_a_file_without_front_matter_is_one_error(root: Path) -> None:
    """No key can be named then."""
    (root / "TOOL.md").write_text("# A\n")
    assert only(root).reason.startswith("the first line must be `---`")


def test_problems_of_the_directory_are_errors(root: Path) -> None:
    """Specification, "File Structure": both files are required."""
    assert only(root / "none").reason == "is not a directory"
    empty = root / "empty"
    empty.mkdir()
    assert only(empty).reason == "no TOOL.md"
    assert only(empty).remedy == "add TOOL.md, or have a whole tool written by edged new-tool NAME"
    (root / "link").symlink_to("empty")
    assert only(root / "link").reason == "is a link"
    (empty / "index.ts").write_text("enum A { B }")
    assert {one[3][:6] for one in found(empty)} == {"no TOOL"[:6], "`enum`", "no exp"}
    other = root / "other"
    other.mkdir()
    tool(other, "index.py", "")
    (other / "index.py").rename(other / "index.ts")
    assert only(other).remedy == "write `language: typescript` or add index.py"


def test_a_source_that_is_too_large_is_an_error(root: Path) -> None:
    """Sizes are bounded."""
    assert only(tool(root, "index.py", b"#" * (SOURCE_MAX + 1))).reason == "larger than 4 MiB"


@pytest.mark.parametrize(
    "name", ["package.json", "tsconfig.json", "node_modules", "test", "tests"]
)
def test_clutter_is_a_warning(root: Path, name: str) -> None:
    """Specification, "Unnecessary files"."""
    (tool(root, "index.ts", HELLO) / name).mkdir()
    one = only(root)
    assert (one.severity, one.file, one.remedy) == ("warning", f"{root}/{name}", "remove it")


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), subprocess.TimeoutExpired("bash", 10)]
)
def test_without_bash_it_is_not_checked(
    root: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board may have no bash; `check-tool` says so and goes on."""

    def missing(*_: object, **__: object) -> None:
        raise error

    tool(root, "index.sh", "echo\n")
    monkeypatch.setattr(subprocess, "run", missing)
    assert only(root).severity == "warning"
    assert only(root).reason.startswith("not checked")


def test_a_failure_of_bash_without_a_line_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, or a message of another form."""
    done = subprocess.CompletedProcess([], 1, b"", b"bash: broken\n")
    tool(root, "index.sh", "echo\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert (only(root).line, only(root).reason) == (0, "not bash: bash: broken")


def test_a_line_is_refused_once(root: Path) -> None:
    """The rules have a remedy; Node.js names the same fault in words of its own."""
    code = "export const execute = 1;\nenum A { B }"
    (one,) = check(str(tool(root, "index.ts", code)))
    assert (one.line, one.remedy) == (2, "use an object `as const` or a union of texts")


def test_without_node_the_syntax_is_not_checked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 10: where there is no Node.js, the tool is blocked with the remedy."""
    tool(root, "index.mjs", "export const execute = ;")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.path", [])
    one = only(root)
    assert (one.severity, one.line) == ("note", 0)
    assert "no Node.js" in one.reason
    assert "Node 22.18" in one.remedy


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("exit 3", "not checked: exit status 3"),
        ("echo 'node: bad option' >&2; exit 9", "not checked: node: bad option"),
        ("printf 'SyntaxError: odd\\n' >&2; exit 1", "not JavaScript: odd"),
    ],
)
def test_what_node_says_otherwise_is_told(
    root: Path, program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, of another version, or with words of another form."""
    tool(root, "index.mjs", "export const execute = 1;")
    node = root.parent / "node"
    node.write_text(f"#!/bin/sh\ncat >/dev/null\n{program}\n")
    node.chmod(0o755)
    monkeypatch.setattr(runtimes, "node", lambda: Runtime((str(node),)))
    assert (only(root).line, only(root).reason) == (0, words)


def test_a_node_that_does_not_start_or_end_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be removed at any time."""
    tool(root, "index.mjs", "export const execute = 1;")
    bind = Bind(str(root / "none"), "/edged-node/node")
    monkeypatch.setattr(runtimes, "node", lambda: Runtime(("/edged-node/node",), (bind,)))
    assert only(root).severity == "warning"
    assert only(root).reason.startswith("not checked: [Errno 2]")


def test_another_name_than_the_directorys_is_a_warning(root: Path) -> None:
    """A copy kept beside (`soil.bak`) takes the name from the tool itself."""
    copy = tool(root, "index.py", GOOD).rename(root.parent / "a.bak")
    one = only(copy)
    assert (one.severity, one.line) == ("warning", 2)
    assert (one.reason, one.remedy) == ("name: a, but the directory is a.bak", "rename one")


def test_a_name_of_a_built_in_tool_is_an_error(root: Path) -> None:
    """Contract, section 10: names of built-in tools are reserved."""
    tool(root, "index.py", GOOD)
    assert check(str(root), {"gpio"}) == []
    (one,) = check(str(root), {"a", "gpio"})
    assert (one.severity, one.line) == ("error", 2)
    assert (one.reason, one.remedy) == ("name: a is the name of a built-in tool", "choose another")


def test_what_this_machine_has_not_is_a_note(root: Path) -> None:
    """Contract, section 10: devices and calls. Another machine may have them."""
    more = "devices: [i2c-77, 'null', sys/kernel, sys/none]\ncalls: [sensor, beside, other]\n"
    tool(root, "index.py", GOOD, more=more)
    (root.parent / "beside").mkdir()
    notes = check(str(root), {"sensor"})
    assert [(one.severity, one.line, one.reason) for one in notes] == [
        ("note", 6, "devices: this machine has no /dev/i2c-77"),
        ("note", 6, "devices: this machine has no /sys/none"),
        ("note", 7, "calls: other is neither built in nor a directory beside this one"),
    ]


def test_errors_come_before_warnings_and_notes(root: Path) -> None:
    """A person mends them in this order."""
    tool(root, "index.py", "", version="", more="devices: [i2c-77]\n")
    assert [one[0] for one in found(root)] == ["error", "warning", "note"]


def test_a_key_in_quotes_has_no_line(root: Path) -> None:
    """The place is a service; the finding is what counts."""
    (root / "TOOL.md").write_text(
        '---\n"name": b\ndescription: x\nversion: 1\nlanguage: python\n---\n'
    )
    (root / "index.py").write_text(GOOD)
    assert (only(root).line, only(root).reason) == (0, "name: b, but the directory is a")


def test_nothing_of_a_tool_is_run(root: Path) -> None:
    """Law of the module: a tool that is being checked is not trusted."""
    trap = root / "trap"
    for entry, code in (
        ("index.py", f"open({str(trap)!r}, 'w')\ndef execute(a, b):\n    return 1\n"),
        ("index.sh", f"touch {trap}\n"),
        (
            "index.ts",
            f"import fs from 'node:fs';\nfs.writeFileSync({str(trap)!r}, '');\n" + HELLO,
        ),
    ):
        directory = root / entry.rpartition(".")[2]
        directory.mkdir()
        assert found(tool(directory, entry, code)) == []
    assert not trap.exists()


@given(st.text(st.sampled_from("`${}'\"/\\*\n ax=([,]")))
def test_blanking_keeps_length_and_lines(code: str) -> None:
    """Lines of findings are lines of the file."""
    blanked = _blanked(code)
    assert len(blanked) == len(code)
    assert [at for at, char in enumerate(blanked) if char == "\n"] == [
        at for at, char in enumerate(code) if char == "\n"
    ]
    assert all(new in (old, " ") for new, old in zip(blanked, code, strict=True))
