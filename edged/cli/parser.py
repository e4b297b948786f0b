"""The option parser of one verb: help within 80 columns, faults in edged's own form."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from edged import paths
from edged.cli import UsageError
from edged.cli.faults import cannot
from edged.client import Client, SocketClient
from edged.errors import ConfigError

WIDTH = 80
COUNT_MAX = 999_999_999


_DESTRUCTIVE = frozenset({"remove", "forget", "reset", "stop", "deny"})
"""Words that are never put into anybody's mouth."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=WIDTH - 1)


class Parser(argparse.ArgumentParser):
    """One verb's arguments.

    Attributes:
        stray: a command line that a word too many may have been meant for, `{}` in its place.
        verbatim: the argument that takes all words after `--` as they are; empty for none.
    """

    def __init__(self, verb: str, summary: str, example: str) -> None:
        super().__init__(
            prog=f"edged {verb}",
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog="example:\n" + "\n".join(f"  {line}" for line in example.splitlines()),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self.stray = ""
        self.verbatim = ""

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Parse; an unknown option is answered with the nearest one.

        Raises:
            UsageError: the command line is wrong.
        """
        # Options may stand among the words: `call hello --timeout 5 name=Ada`.
        words, after = list(args), []
        if self.verbatim and "--" in words:
            at = words.index("--")
            words, after = words[:at], words[at + 1 :]
        known, rest = self.parse_known_intermixed_args(words)
        if rest:
            self.error(self._unknown(rest))
        if after:
            setattr(known, self.verbatim, [*getattr(known, self.verbatim), *after])
        return known

    def arguments(self) -> list[argparse.Action]:
        """Every argument of the verb, in the order of the help."""
        return list(self._actions)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
            UsageError: always.
        """
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"{missing} is missing"
        for action in self._actions:
            if message == f"argument {'/'.join(action.option_strings)}: expected one argument":
                message = f"{action.option_strings[-1]}: {action.metavar} is missing"
        raise UsageError(f"{message}: see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the choices, with the one that was meant."""
        if action.choices is None or value in action.choices:
            return
        from edged.yamlio import nearest

        known = [str(one) for one in action.choices]
        guess = nearest(str(value), known)
        if guess in _DESTRUCTIVE:
            # Who mistook one word for another shall not lose what it names.
            guess = ""
        hint = f"did you mean {guess}?" if guess else f"choose one of {', '.join(known)}"
        raise argparse.ArgumentError(action, f"{str(value)!r} is not known: {hint}")

    def _unknown(self, rest: list[str]) -> str:
        from edged.yamlio import nearest

        word = next((w for w in rest if w.startswith("-")), rest[0])
        options = [s for a in self._actions for s in a.option_strings]
        guess = nearest(word.partition("=")[0], options) if word.startswith("-") else ""
        if not word.startswith("-"):
            guess = self.stray.format(word)
        hint = f", did you mean {guess}?" if guess else ""
        return f"what is {word!r}{hint}"


def positive(text: str) -> float:
    """The type of an option in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(
            f"must be more than 0 and at most 86400 seconds, not {text}"
        )
    return value


def count(text: str) -> int:
    """The type of an option that counts."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= COUNT_MAX):
        known = f"a whole number from 0 to {COUNT_MAX}"
        raise argparse.ArgumentTypeError(f"must be {known}, not {text}")
    return int(text)


def add_json(parser: Parser) -> None:
    """The option of every verb that lists something."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_connection(parser: Parser) -> None:
    """The options of every verb that asks a daemon."""
    group = parser.add_argument_group("which daemon")
    group.add_argument("--socket", metavar="PATH", help="its socket (EDGED_SOCKET)")
    group.add_argument("--url", help="its HTTP address instead (EDGED_URL, with EDGED_TOKEN)")
    group.add_argument("--token-file", metavar="FILE", help="the token for --url")


def connect(args: Any) -> Client:
    """The daemon that the arguments or the environment name.

    Raises:
        NoDaemonError: none answers there.
        UsageError: no such URL, or no token for it.
    """
    url = args.url or ("" if args.socket else os.environ.get("EDGED_URL", ""))
    if not url:
        return SocketClient(args.socket or paths.client_socket())
    if args.socket:
        raise UsageError("--socket and --url: name one of them")
    from edged.webclient import WebClient, parts

    try:
        parts(url)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return WebClient(url, _token(args.token_file))


def _token(file: str | None) -> str:
    if file is None:
        token = os.environ.get("EDGED_TOKEN", "")
        if not token:
            raise UsageError("a URL needs a token: give --token-file or set EDGED_TOKEN")
        return token
    try:
        if file == "-":
            token = sys.stdin.readline().strip()
        else:
            with open(file, encoding="utf-8") as opened:
                token = opened.read().strip()
    except OSError as error:
        raise UsageError(f"--token-file: {cannot('read', file, error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--token-file {file} is not UTF-8 text: name a token's file") from None
    if not token:
        raise UsageError(f"--token-file {file} is empty: name a token's file")
    return token
