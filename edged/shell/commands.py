"""A command line taken apart as a shell would: simple commands, words without their quotes.

Pure. It reads the shell's grammar as far as words and commands need it (POSIX.1-2017,
XCU 2.2 to 2.10, and bash's additions), expands nothing, and never fails: what is not
closed ends with the text. What a variable or a program's own input holds is not seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

DEPTH_MAX = 16
"""Substitutions and shells inside each other that are looked into."""

WORK_LEAST = 1 << 16
"""Characters and words that are looked at in the whole, whatever a text's length."""

WORK_EACH = 4
"""How often, beside that, each character of a text may be looked at: what `eval` is given
is read as its argument and as a command, and so doubles with every level."""

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash", "ksh", "mksh", "fish", "csh", "tcsh"})


class Word(NamedTuple):
    """One word: its text without quotes, and whether it had none."""

    text: str
    plain: bool


class Redirect(NamedTuple):
    """A redirection: `>`, `>>`, `<`, and its file or text."""

    operator: str
    target: str


class _Body(NamedTuple):
    """A here-document that begins on the next line, and where its text goes."""

    redirects: list[Redirect]
    place: int
    delimiter: str
    is_expanded: bool


class Command(msgspec.Struct):
    """A simple command.

    Attributes:
        words: the program and its arguments, without assignments and keywords.
        redirects: in their order; here-documents have their text.
        feeds: the command whose output it reads by a pipe, or None.
        runs: its own words, and those of each command that it runs by its arguments.
    """

    words: list[str] = []
    redirects: list[Redirect] = []
    feeds: Command | None = None
    runs: list[list[str]] = []

    @property
    def text(self) -> str:
        """The command in one line, without quotes."""
        return " ".join(self.words)


class Script(msgspec.Struct):
    """What a text has in it, at any depth.

    Attributes:
        commands: all simple commands.
        substitutions: `$(…)` and backquotes, as they are written.
        too_deep: whether something is nested deeper, or more often, than is looked.
        work: characters and words that may still be looked at.
    """

    commands: list[Command] = []
    substitutions: list[str] = []
    too_deep: bool = False
    work: int = 0

    def spend(self, amount: int) -> bool:
        """Whether so much more may be looked at; if not, the script is too deep."""
        self.work -= amount
        if self.work < 0:
            self.too_deep = True
        return self.work >= 0


def parse(text: str) -> Script:
    """Take a command line apart."""
    script = Script([], [], work=WORK_LEAST + WORK_EACH * len(text))
    _read(text, script, 0)
    return script


_PIECE = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_QUOTED = re.compile(r"[^\"\\$`]+")
_REDIRECT = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|<|>>|>\||>&|>")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until"}) | {
    *("{", "}", "!", "time", "esac", "coproc"),
}
_NAMES = frozenset({"for", "case", "select", "function"})
"""Keywords after which no command comes."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "v": "\v"}
_ANSI_C = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", re.DOTALL)


def _read(text: str, script: Script, depth: int) -> None:
    if depth > DEPTH_MAX:
        script.too_deep = True
    elif script.spend(len(text)):
        _Reader(text, script, depth).read()


class _Reader:
    """Reads one text from its beginning to its end."""

    def __init__(self, text: str, script: Script, depth: int) -> None:
        self._text, self._script, self._depth = text, script, depth
        self._at = 0
        self._parts: list[str] = []
        self._plain = True
        self._has_word = False
        self._words: list[Word] = []
        self._redirects: list[Redirect] = []
        self._operator = ""
        self._before: Command | None = None
        self._bodies: list[_Body] = []
        self._awaits_body = False
        self._waiting: list[Command] = []

    def read(self) -> None:
        """Add all commands of the text to the script."""
        text, size = self._text, len(self._text)
        while self._at < size:
            char = text[self._at]
            if char in " \t\r":
                self._end_word()
                self._at += 1
            elif char == "\n":
                self._end_command()
                self._at += 1
                self._read_bodies()
            elif char == "#" and not self._has_word:
                end = text.find("\n", self._at)
                self._at = size if end < 0 else end
            elif char in "<>" or text.startswith("&>", self._at):
                self._redirect()
            elif char in ";&|()":
                self._end_of_command(char)
            else:
                self._piece(char)
        self._end_command()
        self._read_bodies()

    # Words

    def _add(self, text: str, *, plain: bool = True) -> None:
        self._parts.append(text)
        self._plain &= plain
        self._has_word = True

    def _piece(self, char: str) -> None:
        text = self._text
        if char == "\\":
            if not text.startswith("\\\n", self._at):
                self._add(text[self._at + 1 : self._at + 2], plain=False)
            self._at += 2
        elif char == "'":
            end = self._find("'", self._at + 1)
            self._add(text[self._at + 1 : end], plain=False)
            self._at = end + 1
        elif char == '"':
            self._add("", plain=False)
            self._at += 1
            self._quoted('"')
        elif char == "$":
            self._dollar(quoted=False)
        elif char == "`":
            self._backquoted()
        else:
            match = _PIECE.match(text, self._at)
            piece = match.group() if match else char
            self._add(piece)
            self._at += len(piece)

    def _quoted(self, end: str) -> None:
        """What stands between double quotes, or up to the end of the text."""
        text, size = self._text, len(self._text)
        while self._at < size:
            char = text[self._at]
            if char == end:
                self._at += 1
                return
            if char == "\\":
                escaped = text[self._at + 1 : self._at + 2]
                if escaped != "\n":
                    self._add(escaped if escaped in '$`"\\' else f"\\{escaped}", plain=False)
                self._at += 2
            elif char == "$":
                self._dollar(quoted=True)
            elif char == "`":
                self._backquoted()
            else:
                match = _QUOTED.match(text, self._at)
                piece = match.group() if match else char
                self._add(piece, plain=False)
                self._at += len(piece)

    def _dollar(self, *, quoted: bool) -> None:
        text, at = self._text, self._at
        if text.startswith("$((", at):
            end = self._closing(at + 1, "()")
            if text[end - 1 : end] == ")":
                self._inside(text[at + 3 : end - 1])
                self._whole(end)
                return
        if text.startswith("$(", at):
            end = self._closing(at + 1, "()")
            self._script.substitutions.append(text[at : end + 1])
            _read(text[at + 2 : end], self._script, self._depth + 1)
            self._whole(end)
        elif text.startswith("${", at):
            end = self._closing(at + 1, "{}")
            self._inside(text[at + 2 : end])
            self._whole(end)
        elif text.startswith("$'", at) and not quoted:
            end = self._ansi_c_end(at + 2)
            self._add(_ANSI_C.sub(_unescaped, text[at + 2 : end]), plain=False)
            self._at = end + 1
        else:
            self._add("" if text.startswith('$"', at) and not quoted else "$")
            self._at += 1

    def _whole(self, end: int) -> None:
        """An expansion stays in its word as it is written."""
        self._add(self._text[self._at : end + 1])
        self._at = end + 1

    def _backquoted(self) -> None:
        text = self._text
        end = self._at + 1
        while end < len(text) and text[end] != "`":
            end += 2 if text[end] == "\\" else 1
        inner = re.sub(r"\\([$`\\])", r"\1", text[self._at + 1 : end])
        self._script.substitutions.append(text[self._at : end + 1])
        _read(inner, self._script, self._depth + 1)
        self._whole(min(end, len(text)))

    def _inside(self, text: str) -> None:
        """Substitutions in what is no command: arithmetic, a parameter, a here-document."""
        if "$" not in text and "`" not in text:
            return
        if self._depth >= DEPTH_MAX:
            self._script.too_deep = True
        elif self._script.spend(len(text)):
            _Reader(text, self._script, self._depth + 1)._quoted("")  # noqa: SLF001  its own kind

    def _find(self, what: str, start: int) -> int:
        end = self._text.find(what, start)
        return len(self._text) if end < 0 else end

    def _ansi_c_end(self, start: int) -> int:
        end = start
        while end < len(self._text) and self._text[end] != "'":
            end += 2 if self._text[end] == "\\" else 1
        return min(end, len(self._text))

    def _closing(self, start: int, pair: str) -> int:
        """Where the bracket at `start` is closed; quotes hide brackets."""
        text, size = self._text, len(self._text)
        opened = 0
        at = start
        while at < size:
            char = text[at]
            if char == "\\":
                at += 1
            elif char == "'":
                at = self._find("'", at + 1)
            elif char == '"':
                at = self._quote_end(at + 1)
            elif char == pair[0]:
                opened += 1
            elif char == pair[1]:
                opened -= 1
                if not opened:
                    return at
            at += 1
        return size

    def _quote_end(self, at: int) -> int:
        while at < len(self._text) and self._text[at] != '"':
            at += 2 if self._text[at] == "\\" else 1
        return at

    # Commands

    def _redirect(self) -> None:
        text, at = self._text, self._at
        if text[at + 1 : at + 2] == "(" and text[at] != "&":
            end = self._closing(at + 1, "()")
            _read(text[at + 2 : end], self._script, self._depth + 1)
            self._whole(end)
            return
        if self._plain and "".join(self._parts).isdecimal():
            self._drop_word()  # the number of the descriptor
        self._end_word()
        match = _REDIRECT.match(text, at)
        self._operator = match.group() if match else text[at]
        self._at += len(self._operator)

    def _end_of_command(self, char: str) -> None:
        piped = char == "|" and not self._text.startswith("||", self._at)
        before = self._end_command()
        self._at += 1 if piped or not self._text.startswith(char * 2, self._at) else 2
        if piped:
            self._at += self._text.startswith("&", self._at)
            self._before = before

    def _drop_word(self) -> None:
        self._parts, self._plain, self._has_word = [], True, False

    def _end_word(self) -> None:
        if not self._has_word:
            return
        word = Word("".join(self._parts), self._plain)
        self._drop_word()
        operator, self._operator = self._operator, ""
        if not operator:
            self._words.append(word)
            return
        if operator in ("<<", "<<-"):
            place = len(self._redirects)
            self._bodies.append(_Body(self._redirects, place, word.text, word.plain))
            self._awaits_body = True
        self._redirects.append(Redirect(operator, word.text))

    def _end_command(self) -> Command | None:
        self._end_word()
        self._operator = ""
        words, self._words = _without_keywords(self._words), []
        before, self._before = self._before, None
        if not words and not self._redirects:
            return before
        command = Command(words, self._redirects, before)
        self._redirects = []
        self._script.commands.append(command)
        awaits_body, self._awaits_body = self._awaits_body, False
        if awaits_body:
            self._waiting.append(command)
        else:
            _read_shells(command, self._script, self._depth)
        return command

    def _read_bodies(self) -> None:
        """The texts of the here-documents that began on the line before."""
        bodies, self._bodies = self._bodies, []
        for body in bodies:
            lines = []
            while self._at < len(self._text):
                end = self._find("\n", self._at)
                line = self._text[self._at : end]
                self._at = end + 1
                if line.lstrip("\t") == body.delimiter:
                    break
                lines.append(line)
            text = "\n".join(lines)
            body.redirects[body.place] = Redirect("<<", text)
            if body.is_expanded:
                self._inside(text)
        commands, self._waiting = self._waiting, []
        for command in commands:
            _read_shells(command, self._script, self._depth)


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1)
    if code[0] in "xu" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8) & 0xFF)
    return _ESCAPES.get(code, code)


def _without_keywords(words: Sequence[Word]) -> list[str]:
    """The words of the command itself; none where a keyword takes them all."""
    start = 0
    for word in words:
        if word.plain and word.text in _NAMES:
            return []
        if not (word.plain and word.text in _KEYWORDS) and not _ASSIGNMENT.match(word.text):
            break
        start += 1
    return [word.text for word in words[start:]]


def _read_shells(command: Command, script: Script, depth: int) -> None:
    """Read what a shell is given to run: `sh -c`, `eval`, a here-document, a here-string."""
    command.runs = _unwrapped(command.words, script)
    for words in command.runs:
        name = program(words)
        if name == "eval":
            _read(" ".join(words[1:]), script, depth + 1)
        elif name in SHELLS:
            text = shell_text(words)
            if text is not None:
                _read(text, script, depth + 1)
            for redirect in command.redirects:
                if redirect.operator in ("<<", "<<-", "<<<"):
                    _read(redirect.target, script, depth + 1)


def program(words: Sequence[str]) -> str:
    """The program's name without its directory."""
    return os.path.basename(words[0]) if words else ""


def shell_text(words: Sequence[str]) -> str | None:
    """The text that `sh -c TEXT` runs; None where there is no `-c`."""
    for place, word in enumerate(words[1:], 1):
        if word.startswith("-") and not word.startswith("--") and "c" in word[1:]:
            rest = [w for w in words[place + 1 :] if not w.startswith("-")]
            return rest[0] if rest else ""
        if not word.startswith(("-", "+")):
            return None
    return None


_WRAPPERS: dict[str, str] = {
    "env": "uSC",
    "nice": "n",
    "ionice": "cn",
    "timeout": "ks",
    "stdbuf": "ioe",
    "xargs": "IiLnPsEda",
    "nohup": "",
    "setsid": "",
    "exec": "a",
    "command": "",
    "builtin": "",
    "busybox": "",
    "time": "fo",
    "watch": "n",
    "sudo": "ugpCDhRrtTU",
    "doas": "uC",
    "chroot": "",
    "unshare": "",
    "flock": "wE",
    "parallel": "j",
}
"""Programs that run another one, and their short options that take a value."""

_OPERANDS = {"timeout": 1, "chroot": 1, "flock": 1}
"""What stands before the command there."""


def _unwrapped(words: Sequence[str], script: Script) -> list[list[str]]:
    """A command, and those that it runs by its arguments: `env A=1 nice rm`, `find -exec`.

    A command is found once, by the place of its program, however many ways lead there; the
    first `find` is searched to its end, and so for every other one inside.
    """
    is_searched = False
    found: dict[int, list[str]] = {}
    waiting = [(0, len(words))]
    while waiting:
        start, end = waiting.pop()
        while start < end and _ASSIGNMENT.match(words[start]):
            start += 1
        if start >= end or start in found:
            continue
        if not script.spend(end - start):
            break
        found[start] = list(words[start:end])
        name = program(found[start])
        if name in _WRAPPERS:
            waiting.append((_after_options(words, start + 1, end, name), end))
        elif name == "find" and not is_searched:
            is_searched = True
            waiting.extend(_executed(words, start, end))
    return list(found.values())


def _executed(words: Sequence[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the commands of a `find` begin and end, the last one first.

    They end at `;`, those of `-exec` also at a `+` behind `{}` (POSIX.1-2017, XCU, find).
    Each `-exec` counts, even where it may be another's argument: `-name -exec -exec rm`.
    """
    semicolon = either = end
    for place in range(end - 1, start, -1):
        word = words[place]
        if word == ";":
            semicolon = either = place
        elif word == "+" and words[place - 1] == "{}":
            either = place
        elif word in ("-exec", "-execdir"):
            yield place + 1, either
        elif word in ("-ok", "-okdir"):
            yield place + 1, semicolon


def _after_options(words: Sequence[str], at: int, end: int, name: str) -> int:
    """Where the command of a wrapper begins, whose own arguments begin at `at`."""
    valued = _WRAPPERS[name]
    while at < end and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if len(word) == 2 and word[1] in valued:
            at += 1
    return at + _OPERANDS.get(name, 0)


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_GLOB = re.compile(r"[*?\[{$`]")


def paths(script: Script) -> list[str]:
    """Absolute paths that the commands name, in their order; of a pattern, what is before it.

    Also `--file=/path` and `if=/path`; never a URL.
    """
    found: dict[str, None] = {}
    for command in script.commands:
        words = [*command.words, *(r.target for r in command.redirects if "<<" not in r.operator)]
        for word in words:
            for part in (word, word.partition("=")[2]):
                if part.startswith("/") and not _URL.match(word):
                    found[_before_pattern(part)] = None
    return [path for path in found if path]


def written(script: Script) -> frozenset[str]:
    """Absolute paths that the commands redirect output into."""
    return frozenset(
        _before_pattern(redirect.target)
        for command in script.commands
        for redirect in command.redirects
        if ">" in redirect.operator and redirect.target.startswith("/")
    )


def _before_pattern(word: str) -> str:
    match = _GLOB.search(word)
    if match is None:
        return os.path.normpath("/" + word.lstrip("/"))
    head = os.path.dirname(word[: match.start()])
    return os.path.normpath(head) if head.strip("/") else ""
