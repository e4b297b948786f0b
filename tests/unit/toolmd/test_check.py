"""`edged check-tool`: what is found without running a tool."""

import os
import pathlib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def tool(root: Path, entry: str, code: str | bytes, *, version: str = "version: 1\n") -> Path:
    language = {"ts": "typescript", "js": "typescript", "mjs": "typescript"}
    names = {"py": "python", "sh": "bash"}
    kind = entry.rpartition(".")[2]
    (root / "TOOL.md").write_text(
        f"---\nname: a\ndescription: x\n{version}language: {(language | names)[kind]}\n---\n# A\n"
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
        ("index.js", "function run() { return 1 }\nexport { a, run as execute }"),
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
def test_a_good_tool_has_no_findings(tmp_path: Path, entry: str, code: str) -> None:
    """Specification, "index.ts Format"; contract, section 10."""
    assert found(tool(tmp_path, entry, code)) == []


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
    tmp_path: Path, entry: str, code: str | bytes, line: int, words: str
) -> None:
    """Specification, "Common Mistakes", and contract, section 10."""
    errors = [one for one in check(str(tool(tmp_path, entry, code))) if one.severity == "error"]
    assert any(one.line == line and words in one.reason for one in errors), errors
    assert all(one.remedy and one.file == f"{tmp_path}/{entry}" for one in errors)


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
    tmp_path: Path, entry: str, code: str, line: int, words: str
) -> None:
    """Specification, "Common Mistakes": agent never sees this."""
    one = only(tool(tmp_path, entry, code))
    assert (one.severity, one.line) == ("warning", line)
    assert words in one.reason


def test_log_lines_beside_a_result_are_fine(tmp_path: Path) -> None:
    """They are of use to whoever writes the tool."""
    code = "export function execute() {\n  console.log('x');\n  return { content: [] };\n}"
    assert found(tool(tmp_path, "index.js", code)) == []


def test_texts_comments_and_patterns_are_no_code(tmp_path: Path) -> None:
    """A message about `Bun.write` is no use of it."""
    code = (
        "/* module.exports\n enum A { */ // Bun.file(x)\n"
        "export function execute() {\n"
        "  const a = `Bun.file ${b ? `enum ${'}'} {` : { c: 1 }.c} \\` module.exports ${d}`;\n"
        "  const e = f.replace(/['\"`/]/g, 'require.main \\' Bun.x');\n"
        '  return /`"/.test(a) ? "process.argv" : "from \'bun:sqlite\'";\n'
        "}\n"
    )
    assert found(tool(tmp_path, "index.ts", code)) == []
    assert "Bun" in _blanked(code + "Bun.file()")


def test_warnings_of_the_manifest_have_their_line(tmp_path: Path) -> None:
    """Specification, "Forgetting to bump version"; contract, section 10, names."""
    one = only(tool(tmp_path, "index.ts", HELLO, version=""))
    assert (one.severity, one.line) == ("warning", 2)
    assert one.reason == "version: is missing and counts as 0: write `version: 1`"


def test_faults_of_the_manifest_come_one_by_one(tmp_path: Path) -> None:
    """Contract, section 2: file, line, reason, remedy."""
    (tmp_path / "TOOL.md").write_text("---\nname: A\nversion: x\ntimeout: 0\n---\n")
    (tmp_path / "index.py").write_text("def run(): pass\n")
    (tmp_path / "index.sh").write_text("echo\n")
    assert [one[:3] for one in found(tmp_path)] == [
        ("error", "TOOL.md", 2),
        ("error", "TOOL.md", 3),
        ("error", "TOOL.md", 4),
        ("error", "index.py", 0),
        ("warning", "TOOL.md", 2),
    ]


def test_a_file_without_front_matter_is_one_error(tmp_path: Path) -> None:
    """No key can be named then."""
    (tmp_path / "TOOL.md").write_text("# A\n")
    assert only(tmp_path).reason.startswith("the first line must be `---`")


def test_problems_of_the_directory_are_errors(tmp_path: Path) -> None:
    """Specification, "File Structure": both files are required."""
    assert only(tmp_path / "none").reason == "is not a directory"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (only(empty).reason, only(empty).remedy) == ("no TOOL.md", "add TOOL.md")
    (tmp_path / "link").symlink_to("empty")
    assert only(tmp_path / "link").reason == "is a link"
    (empty / "index.ts").write_text("enum A { B }")
    assert {one[3][:6] for one in found(empty)} == {"no TOOL"[:6], "`enum`", "no exp"}
    other = tmp_path / "other"
    other.mkdir()
    tool(other, "index.py", "")
    (other / "index.py").rename(other / "index.ts")
    assert only(other).remedy == "write `language: typescript` or add index.py"


def test_a_source_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    """Sizes are bounded."""
    assert only(tool(tmp_path, "index.py", b"#" * (SOURCE_MAX + 1))).reason == "larger than 4 MiB"


@pytest.mark.parametrize(
    "name", ["package.json", "tsconfig.json", "node_modules", "test", "tests"]
)
def test_clutter_is_a_warning(tmp_path: Path, name: str) -> None:
    """Specification, "Unnecessary files"."""
    (tool(tmp_path, "index.ts", HELLO) / name).mkdir()
    one = only(tmp_path)
    assert (one.severity, one.file, one.remedy) == ("warning", f"{tmp_path}/{name}", "remove it")


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file"), subprocess.TimeoutExpired("bash", 10)]
)
def test_without_bash_it_is_not_checked(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board may have no bash; `check-tool` says so and goes on."""

    def missing(*_: object, **__: object) -> None:
        raise error

    tool(tmp_path, "index.sh", "echo\n")
    monkeypatch.setattr(subprocess, "run", missing)
    assert only(tmp_path).severity == "warning"
    assert only(tmp_path).reason.startswith("not checked")


def test_a_failure_of_bash_without_a_line_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, or a message of another form."""
    done = subprocess.CompletedProcess([], 1, b"", b"bash: broken\n")
    tool(tmp_path, "index.sh", "echo\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert (only(tmp_path).line, only(tmp_path).reason) == (0, "not bash: bash: broken")


def test_nothing_of_a_tool_is_run(tmp_path: Path) -> None:
    """Law of the module: a tool that is being checked is not trusted."""
    trap = tmp_path / "trap"
    for entry, code in (
        ("index.py", f"open({str(trap)!r}, 'w')\ndef execute(a, b):\n    return 1\n"),
        ("index.sh", f"touch {trap}\n"),
    ):
        directory = tmp_path / entry
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
