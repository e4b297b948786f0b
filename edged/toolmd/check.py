"""`edged check-tool`: everything that can be known of a tool's directory without running it.

Nothing of the tool is executed. Laws: an error is something that keeps the tool from working; what
may be meant as it is, is a warning; what this machine lacks and another may have, is a note.
JavaScript is searched with comments and texts blanked out,
so that words in a message are no findings.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import warnings
from collections.abc import Collection, Iterator
from typing import Literal

import msgspec

from edged import runtimes
from edged.errors import ConfigError
from edged.toolmd.discover import (
    ENTRY_FILES,
    TOOL_FILE,
    Problem,
    entry_file,
    examine,
    read_inside,
)
from edged.toolmd.frontmatter import FILE_MAX
from edged.toolmd.manifest import Manifest, review

SOURCE_MAX = 4 << 20
SYNTAX_TIMEOUT_S = 10

Severity = Literal["error", "warning", "note"]
_ORDER: tuple[Severity, ...] = ("error", "warning", "note")

RESERVED = "is the name of a built-in tool: choose another"
"""What is wrong with such a name, and what to do."""


class Finding(msgspec.Struct, frozen=True):
    """One thing to mend.

    Attributes:
        line: 1-based, or 0 when it is not in a line.
        remedy: what to do; may be empty when `reason` says it.
    """

    severity: Severity
    file: str
    line: int
    reason: str
    remedy: str = ""


def check(directory: str, built_in: Collection[str] = ()) -> list[Finding]:
    """All findings of one tool directory: errors first, then by file and line.

    Args:
        directory: path of it.
        built_in: names of the daemon's own tools, which no other may have.
    """
    directory = os.path.abspath(directory)
    entry = examine(directory, "user", 0.0)
    found: list[Finding] = []
    if os.path.isdir(directory) and not os.path.islink(directory):
        found += [*_tool_file(directory), *_clutter(directory)]
        # Where the manifest does not say which entry file is meant, each one is looked at.
        manifest = entry.manifest
        if manifest is not None:
            found += _surroundings(directory, manifest, built_in)
        for language in ENTRY_FILES if manifest is None else (manifest.language,):
            found += _entry(directory, language)
    problem = entry.problem
    if entry.manifest is not None and not entry.entry:
        # In its own words: what is said of keys is found above.
        named = entry_file(directory, entry.manifest.language)
        problem = named if isinstance(named, Problem) else problem
    if problem is not None and not _said(problem, found):
        found.append(_from_problem(problem))
        if problem.file == f"{directory}/{TOOL_FILE}" and not os.path.lexists(problem.file):
            remedy = f"{problem.remedy}, or have a whole tool written by edged new-tool NAME"
            found[-1] = msgspec.structs.replace(found[-1], remedy=remedy)
    return sorted(
        set(found), key=lambda one: (_ORDER.index(one.severity), one.file, one.line, one.reason)
    )


def _from_problem(problem: Problem) -> Finding:
    return Finding("error", problem.file, problem.line, problem.reason, problem.remedy)


def _said(problem: Problem, found: list[Finding]) -> bool:
    """Whether a problem only sums up what was found in the same file."""
    return any(one.severity == "error" and one.file == problem.file for one in found)


def _tool_file(directory: str) -> Iterator[Finding]:
    data = read_inside(directory, TOOL_FILE, FILE_MAX)
    if isinstance(data, Problem):
        return
    found = review(data, f"{directory}/{TOOL_FILE}")
    yield from (_from_config("error", fault) for fault in found.faults)
    yield from (_from_config("warning", warning) for warning in found.warnings)


def _from_config(severity: Severity, error: ConfigError) -> Finding:
    reason = f"{error.key}: {error.reason}" if error.key else error.reason
    return Finding(severity, error.file, error.line, reason)


def _surroundings(
    directory: str, manifest: Manifest, built_in: Collection[str]
) -> Iterator[Finding]:
    """What does not fit the place that the tool is in."""
    file = f"{directory}/{TOOL_FILE}"
    data = read_inside(directory, TOOL_FILE, FILE_MAX)
    text = b"" if isinstance(data, Problem) else data
    name, own = manifest.name, os.path.basename(directory)
    if name in built_in:
        reason, _, remedy = RESERVED.partition(": ")
        yield Finding("error", file, _key_line(text, "name"), f"name: {name} {reason}", remedy)
    if name != own:
        reason = f"name: {name}, but the directory is {own}"
        yield Finding("warning", file, _key_line(text, "name"), reason, "rename one")
    for device in manifest.devices:
        path = f"/{device}" if device.startswith("sys/") else f"/dev/{device}"
        if not os.path.exists(path):
            reason = f"devices: this machine has no {path}"
            remedy = "the tool works where it is there"
            yield Finding("note", file, _key_line(text, "devices"), reason, remedy)
    for called in manifest.calls:
        beside = os.path.join(os.path.dirname(directory), called)
        if called not in built_in and not os.path.isdir(beside):
            reason = f"calls: {called} is neither built in nor a directory beside this one"
            remedy = "the tool works where there is such a tool"
            yield Finding("note", file, _key_line(text, "calls"), reason, remedy)


def _key_line(text: bytes, key: str) -> int:
    """The line of a key of the front matter; 0 when it is written in another way."""
    found = re.search(rb"(?m)^%b[ \t]*:" % key.encode(), text)
    return 1 + text.count(b"\n", 0, found.start()) if found else 0


def _entry(directory: str, language: str) -> Iterator[Finding]:
    name = entry_file(directory, language)
    if isinstance(name, Problem):
        return
    path = f"{directory}/{name}"
    data = read_inside(directory, name, SOURCE_MAX)
    if isinstance(data, Problem):
        yield _from_problem(data)
        return
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        yield Finding("error", path, line, "not UTF-8 text", "save the file as UTF-8")
        return
    yield from {"typescript": _script, "python": _python, "bash": _bash}[language](path, source)
    if language == "python":
        yield from _beside(directory, name)


def _beside(directory: str, entry: str) -> Iterator[Finding]:
    """Modules that the entry file may import: whether they are Python at all."""
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".py") or name == entry:
            continue
        path = f"{directory}/{name}"
        data = read_inside(directory, name, SOURCE_MAX)
        if isinstance(data, Problem):
            yield _from_problem(data)
            continue
        try:
            _parsed(path, data)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            yield _not_python(path, error)


_CLUTTER = ("package.json", "package-lock.json", "tsconfig.json", "node_modules", "test", "tests")


def _clutter(directory: str) -> Iterator[Finding]:
    for name in _CLUTTER:
        path = f"{directory}/{name}"
        if os.path.lexists(path):
            yield Finding("warning", path, 0, "a tool does not need this", "remove it")


_PYTHON_FORM = "write `def execute(tool_call_id, params, signal=None, on_update=None):`"


def _python(path: str, source: str) -> Iterator[Finding]:
    try:
        tree = _parsed(path, source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield _not_python(path, error)
        return
    function = next((node for node in tree.body if _defines(node, "execute")), None)
    if function is None:
        yield Finding("error", path, 0, "no `execute` at the top level", _PYTHON_FORM)
    elif isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _python_execute(path, function)


def _parsed(path: str, source: str | bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source, path)
        compile(tree, path, "exec")
    return tree


def _not_python(path: str, error: Exception) -> Finding:
    if isinstance(error, SyntaxError):
        reason = f"not Python: {error.msg}"
        return Finding("error", path, error.lineno or 0, reason, "mend the line")
    return Finding("error", path, 0, f"not Python: {error}", "mend the file")


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name) == name for alias in node.names)
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _python_execute(path: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    places = len(node.args.posonlyargs) + len(node.args.args)
    if places < 2 and node.args.vararg is None:
        reason = "`execute` must take the call's id and its parameters"
        yield Finding("error", path, node.lineno, reason, _PYTHON_FORM)
    inside = list(ast.walk(node))
    prints = [
        one
        for one in inside
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "print"
    ]
    returns = any(isinstance(one, ast.Return) and one.value is not None for one in inside)
    if prints and not returns:
        reason = "`print` is the only output, and the agent never sees it"
        yield Finding("warning", path, prints[0].lineno, reason, "return the text")


def _bash(path: str, source: str) -> Iterator[Finding]:
    if "\r\n" in source:
        reason = "CRLF line ends: bash takes the CR for text"
        line = 1 + source.count("\n", 0, source.index("\r\n"))
        yield Finding("error", path, line, reason, "save the file with LF line ends")
        return
    try:
        done = subprocess.run(
            ["bash", "--norc", "-n", "-s"],
            input=source.encode(),
            capture_output=True,
            timeout=SYNTAX_TIMEOUT_S,
            check=False,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("warning", path, 0, f"not checked: {error}", "install bash")
        return
    if done.returncode != 0:
        text = done.stderr.decode("utf-8", "replace")
        found = re.search(r"line ([0-9]+): (.*)", text)
        line, reason = (int(found[1]), found[2]) if found else (0, text.strip())
        yield Finding("error", path, line, f"not bash: {reason}", "mend the line")


_EXPORTS = (
    r"\bexport\s+(?:async\s+)?function\s*\*?\s*execute\b",
    r"\bexport\s+(?:const|let|var)\s+execute\b",
    r"\bexport\s*\{(?:[^}]*?,)?\s*(?:[^,}]*\bas\s+)?execute\s*[,}]",
    r"\bexport\s*\*",
)
"""How a module exports `execute`; `export *` may, and is given the benefit of the doubt."""

_SCRIPT_FORM = "write `export async function execute(toolCallId, params) { … }`"

_ALWAYS_WRONG = (
    (r"\bmodule\.exports\b|\bexports\.execute\b", "`module.exports` is not read", _SCRIPT_FORM),
    (
        r"\brequire\.main\b",
        "a command-line entry point never runs, and `require` is not there",
        _SCRIPT_FORM,
    ),
    (
        r"\bBun\s*\.\s*\w+",
        "Bun's functions are not there: tools run on Node.js",
        "use node:fs, setTimeout, fetch or node:child_process",
    ),
)
"""Pattern, reason and remedy of what never works, TypeScript or JavaScript."""

_NOT_STRIPPED = (
    (
        r"(?m)^[ \t]*(?:export\s+)?(?:const\s+)?enum\s+\w+\s*\{",
        "`enum` is more than a type, and types are only stripped",
        "use an object `as const` or a union of texts",
    ),
    (
        r"(?m)^[ \t]*(?:export\s+)?(?:namespace|module)\s+[\w.]+\s*\{",
        "`namespace` is more than a type, and types are only stripped",
        "export the functions from the file itself",
    ),
    (
        r"\bconstructor\s*\([^)]*?\b(?:public|private|protected|readonly)\s+\w",
        "a parameter property is more than a type, and types are only stripped",
        "declare the field and assign it in the constructor",
    ),
    (
        r"(?m)^[ \t]*import\s+\w+\s*=|^[ \t]*export\s*=",
        "`import x = …` and `export =` are not stripped",
        "use `import x from …` and `export`",
    ),
)
"""TypeScript that Node.js does not run (its documentation: modules, TypeScript support)."""

_BUN_MODULE = r"""\b(?:from|import|require)\s*\(?\s*(['"])bun(?::\w+)?\1"""


def _script(path: str, source: str) -> Iterator[Finding]:
    found = list(_script_rules(path, source))
    yield from found
    known = {one.line for one in found if one.severity == "error"}
    # The rules say more than Node.js does of the same line.
    yield from (one for one in _script_syntax(path, source) if one.line not in known)


_SYNTAX = """
import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { SourceTextModule } from 'node:vm';
const source = readFileSync(0, 'utf8');
const code = process.argv[1] === 'ts' ? stripTypeScriptTypes(source) : source;
new SourceTextModule(code, { identifier: 'entry' });
"""
"""Compiles a module as the daemon's host loads it, and runs nothing of it.

`node --check` looks at no TypeScript, and passes any file that says `export`.
"""


def _script_syntax(path: str, source: str) -> Iterator[Finding]:
    node = runtimes.node()
    if not node.argv:
        reason = "its syntax is not checked: there is no Node.js that runs it"
        yield Finding("note", path, 0, reason, runtimes.REMEDIES["typescript"])
        return
    program = node.binds[0].source if node.binds else node.argv[0]
    kind = "ts" if path.endswith(".ts") else "js"
    options = ("--no-warnings", "--experimental-vm-modules", "--input-type=module")
    try:
        done = subprocess.run(
            [program, *options, "--eval", _SYNTAX, kind],
            input=source.encode(),
            capture_output=True,
            timeout=SYNTAX_TIMEOUT_S,
            check=False,
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("warning", path, 0, f"not checked: {error}", "see whether node works")
        return
    if done.returncode == 0:
        return
    text = done.stderr.decode("utf-8", "replace")
    found = re.search(r"(?m)^SyntaxError(?: \[\w+\])?: (.*)", text)
    if found is None:
        lines = text.strip().splitlines() or [f"exit status {done.returncode}"]
        yield Finding("warning", path, 0, f"not checked: {lines[-1]}", "see whether node works")
        return
    place = re.search(r"(?m)^(?:entry)?:([0-9]+)$", text)
    name = "TypeScript" if kind == "ts" else "JavaScript"
    line = int(place[1]) if place else 0
    yield Finding("error", path, line, f"not {name}: {found[1]}", "mend the line")


def _script_rules(path: str, source: str) -> Iterator[Finding]:
    code = _blanked(source)
    table = (*_ALWAYS_WRONG, *(_NOT_STRIPPED if path.endswith(".ts") else ()))
    for pattern, reason, remedy in table:
        for match in re.finditer(pattern, code):
            yield Finding("error", path, _line(code, match), reason, remedy)
    for match in re.finditer(_BUN_MODULE, source):
        # A text of that form in a comment is no import.
        if code[match.start()] == source[match.start()]:
            reason = "Bun's modules are not there: tools run on Node.js"
            yield Finding("error", path, _line(source, match), reason, "use the node: modules")
    if not any(re.search(pattern, code) for pattern in _EXPORTS):
        yield _no_execute(path, code)
    logged = re.search(r"\bconsole\.log\s*\(", code)
    if logged and not re.search(r"\breturn\b\s*[^\s;}]|\bcontent\b", code):
        reason = "`console.log` is the only output, and the agent never sees it"
        remedy = "return `{ content: [{ type: 'text', text }] }`"
        yield Finding("warning", path, _line(code, logged), reason, remedy)


def _no_execute(path: str, code: str) -> Finding:
    """Why no `execute` is exported, as far as the usual mistakes show it."""
    for pattern, hint in (
        (r"\bexport\s+default\b", "; a default export is not a named one"),
        (r"\bclass\s+\w+", "; the methods of a class are not looked for"),
        (r"\bprocess\.argv\b", "; a command-line entry point never runs"),
        (
            r"\bfunction\s+execute\b|\b(?:const|let|var)\s+execute\b",
            "; it is there, without `export`",
        ),
    ):
        match = re.search(pattern, code)
        if match:
            reason = f"no exported `execute`{hint}"
            return Finding("error", path, _line(code, match), reason, _SCRIPT_FORM)
    return Finding("error", path, 0, "no exported `execute`", _SCRIPT_FORM)


def _line(code: str, match: re.Match[str]) -> int:
    """The line on which the first visible character of a match stands."""
    start = match.start() + len(match[0]) - len(match[0].lstrip())
    return 1 + code.count("\n", 0, start)


_LEXEME = r"""(?sx)
    //[^\n]*                                    # comment
  | /\*.*?(?:\*/|\Z)
  | '(?:\\.|[^'\\\n])*'?                        # text
  | "(?:\\.|[^"\\\n])*"?
  | (?:(?<=[(,=:\[!&|?{};\n])|(?<=\breturn))[ \t]*            # pattern
    /(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/
  | [`{}]
"""


def _blanked(source: str) -> str:
    """JavaScript of the same length with comments, texts and patterns turned into spaces.

    A tokenizer in small: enough to find keywords, not to prove a syntax.
    """
    parts: list[str] = []
    braces: list[int] = []
    """For each template whose `${` is open: how many braces are open inside."""
    lexeme, at = re.compile(_LEXEME), 0
    while match := lexeme.search(source, at):
        text = match[0]
        parts.append(source[at : match.start()])
        at = match.end()
        ends_template = text == "}" and bool(braces) and braces[-1] == 0
        if text == "`" or ends_template:
            if ends_template:
                braces.pop()
            end, opened = _template(source, at)
            parts.append(re.sub(r"[^\n]", " ", source[match.start() : end]))
            at = end
            if opened:
                braces.append(0)
            continue
        if text in "{}":
            if braces:
                braces[-1] += 1 if text == "{" else -1
            parts.append(text)
            continue
        parts.append(re.sub(r"[^\n]", " ", text))
    return "".join((*parts, source[at:]))


def _template(source: str, at: int) -> tuple[int, bool]:
    """Where the text of a template ends that begins at `at`, and whether with a `${`."""
    for match in re.compile(r"(?s)\\.|`|\$\{").finditer(source, at):
        if match[0] in ("`", "${"):
            return match.end(), match[0] == "${"
    return len(source), False
