"""Which commands are refused before they run: a courtesy, the sandbox is the wall.

The specification names what is refused: `rm -rf`, `dd`, `shutdown`, `reboot`, `chmod`,
`chown`, `sudo`, command substitution, a pipe to a shell. Beside them stands what does the
same by another name. Commands are looked at as a shell takes them apart, so that no quote
hides one and no word of an argument is taken for one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from edged.shell import commands
from edged.shell.commands import SHELLS, Command, Script

SHOWN_MAX = 120
"""Characters of a refused command that are shown."""


class Finding(NamedTuple):
    """What is refused: the command or expansion, and why."""

    text: str
    reason: str


def refused(
    text: str,
    script: Script,
    deny: Sequence[re.Pattern[str]] = (),
    allow: Sequence[re.Pattern[str]] = (),
) -> str:
    """Why a command is not run; empty where it may be.

    Args:
        text: the command line as it came.
        script: the same, taken apart.
        deny: the owner's patterns, each looked for in the line and in its single commands.
        allow: the owner's patterns for what the built-in list lets pass; each lifts what
            it is found in, and nothing of `deny`.
    """
    for pattern in deny:
        for candidate in (text, *(command.text for command in script.commands)):
            if pattern.search(candidate):
                return (
                    f"not run: {_shown(candidate)} is refused by the owner's rule "
                    f"'{pattern.pattern}' (tools.exec.deny in edged.yaml)"
                )
    for finding in _findings(text, script):
        if not any(pattern.search(finding.text) for pattern in allow):
            return (
                f"not run: {_shown(finding.text)}: {finding.reason}; the owner can allow it by a "
                "pattern: tools: {exec: {allow: [...]}} in edged.yaml"
            )
    return ""


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= SHOWN_MAX else f"`{line[:SHOWN_MAX]}…`"


def _findings(text: str, script: Script) -> Iterator[Finding]:
    if script.too_deep:
        reason = "it is nested too deeply or too often to be looked at: put it into a file"
        yield Finding(text, reason)
    for substitution in script.substitutions:
        reason = "command substitution is refused: run the inner command first, or use a pipe"
        yield Finding(substitution, reason)
    for command in script.commands:
        yield from _of_command(command)
    if _FORK_BOMB.search("".join(text.split())):
        yield Finding(text, "it starts itself without end")


def _of_command(command: Command) -> Iterator[Finding]:
    for words in command.runs:
        name = commands.program(words)
        reason = _PROGRAMS[name](words) if name in _PROGRAMS else ""
        if not reason and name.startswith("mkfs"):
            reason = _FORMAT
        if reason:
            yield Finding(" ".join(words), reason)
        if _runs_input(name, words, command):
            before = command.feeds
            text = f"{before.text} | {' '.join(words)}" if before else " ".join(words)
            yield Finding(text, "what comes by a pipe is run unseen: save it, read it, run it")
    for redirect in command.redirects:
        if ">" in redirect.operator and _BLOCK_DEVICE.match(redirect.target):
            text = f"{command.text} {redirect.operator} {redirect.target}".strip()
            yield Finding(text, _FORMAT)


# Rules by program


def _rm(words: list[str]) -> str:
    recursive = force = False
    for word in words[1:]:
        if word == "--":
            break
        if word.startswith("--") and len(word) > 2:
            recursive |= "--recursive".startswith(word)
            force |= "--force".startswith(word)
        elif word.startswith("-"):
            recursive |= "r" in word.lower()
            force |= "f" in word
    return "rm that takes whole directories by force is refused" if recursive and force else ""


_FORMAT = "writing to a disk as a whole is refused"


def _always(reason: str) -> Callable[[list[str]], str]:
    return lambda _: reason


def _if_last(words: list[str]) -> str:
    """Of programs that write what their last operand names."""
    operands = [word for word in words[1:] if not word.startswith("-")]
    return _FORMAT if operands and _BLOCK_DEVICE.match(operands[-1]) else ""


def _if_any(words: list[str]) -> str:
    return _FORMAT if any(_BLOCK_DEVICE.match(word) for word in words[1:]) else ""


_POWER = "switching the board off is the owner's"
_MODES = "modes and owners of files are the owner's; run a script by its shell: sh NAME"
_ROOT = "commands run as the user that they are, never as another"
_OFF = frozenset({"reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "hybrid-sleep"})


def _systemctl(words: list[str]) -> str:
    return _POWER if _OFF & set(words[1:]) else ""


def _init(words: list[str]) -> str:
    return _POWER if {"0", "6"} & set(words[1:]) else ""


_PROGRAMS: dict[str, Callable[[list[str]], str]] = {
    "rm": _rm,
    "dd": _always("dd is refused: use head, tail, cp or truncate"),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), _always(_POWER)),
    **dict.fromkeys(("init", "telinit"), _init),
    "systemctl": _systemctl,
    **dict.fromkeys(("chmod", "chown"), _always(_MODES)),
    **dict.fromkeys(("sudo", "su", "doas", "pkexec", "runuser"), _always(_ROOT)),
    **dict.fromkeys(("mke2fs", "mkswap", "wipefs", "blkdiscard"), _always(_FORMAT)),
    **dict.fromkeys(("tee", "shred"), _if_any),
    **dict.fromkeys(("cp", "mv", "install"), _if_last),
}

_BLOCK_DEVICE = re.compile(
    r"/dev/(sd|hd|vd|xvd)[a-z]|/dev/(nvme|mmcblk|loop|dm-|md|sr|nbd|mtdblock)\d"
    r"|/dev/(mapper|disk)/"
)
_FORK_BOMB = re.compile(r"([\w:.]{1,64})\(\)\{[^}]{0,256}\1\|\1&")

_INTERPRETER = re.compile(r"(python|perl|ruby|node|php|lua)[\d.]*")


def _runs_input(name: str, words: list[str], command: Command) -> bool:
    """Whether a program takes from a pipe, or from another's output, what it runs."""
    if name in ("source", ".", *SHELLS) and any(w.startswith("<(") for w in words[1:]):
        return True
    if command.feeds is None:
        return False
    if name in SHELLS:
        if commands.shell_text(words) is not None:
            return False
        return "-s" in words or all(w.startswith(("-", "+")) for w in words[1:])
    if _INTERPRETER.fullmatch(name):
        return all(w == "-" for w in words[1:])
    return name in ("source", ".") and words[1:2] in (["/dev/stdin"], ["-"])
