"""The command line: a table of verbs, and what all of them have in common.

A verb is a file of this package with `EXAMPLE`, `options(parser)` and `run(args)`;
only the one that is called is imported. Exit codes: 0 done, 1 the tool or the
operation failed, 2 wrong usage, 3 no daemon answers, 78 (`serve` alone) a file must be
mended first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from edged import __version__
from edged.errors import ConfigError, EdgedError, NoDaemonError
from edged.log import fault

DONE, FAILED, USAGE, NO_DAEMON, INTERRUPTED = 0, 1, 2, 3, 130

WRONG_FILE = 78
"""EX_CONFIG of sysexits(3), by which a service manager knows not to try again."""

VERBS = {
    "serve": "run the daemon in the foreground",
    "tools": "list tools; switch them on and off",
    "describe": "show one tool: inputs, permissions, documentation",
    "call": "call a tool and print its text",
    "scan": "find buses and chips, with lines for edged.yaml",
    "sensors": "show the readings of the board",
    "safe": "bring all outputs to their safe state, without a daemon",
    "mcp": "be an MCP server on standard input and output",
    "new-tool": "write a working tool directory to start from",
    "check-tool": "check tool directories: file, line, reason, remedy",
    "skills": "find, install, update, list and read skills",
    "agents": "list agents, have one work on a task, see how far it is",
    "sync": "copy the tools that came with edged to the data directory",
    "jobs": "show schedules and their runs, switch, run and remove them",
    "log": "show the trail of calls",
    "status": "show how the daemon and its parts are",
    "web-search": "show and change who is asked for a web search",
    "grant": "answer permission requests of agents",
    "mcp-server": "add, list, test and remove other MCP servers",
    "token": "make, list and revoke HTTP tokens",
    "config": "show the configuration that holds",
    "doctor": "check this machine, with remedies",
    "completion": "print a completion script for your shell",
}
"""Every verb and what it does, in the order of `edged --help`."""


class UsageError(Exception):
    """The command line says something that cannot be meant; exit code 2."""


def check_http(address: str | None) -> None:
    """Refuse a wrong `--http` before anything of the configuration is blamed for it.

    Raises:
        UsageError: it is neither an address nor off.
    """
    if address is None or address == "off":
        return
    from edged.transports.http import parse

    try:
        parse(address)
    except ConfigError as error:
        raise UsageError(f"--http: {error.reason}, or off") from None


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    wrong_file = WRONG_FILE if arguments[:1] == ["serve"] else FAILED
    return guarded(lambda: _dispatch(arguments), wrong_file)


def guarded(work: Callable[[], int], wrong_file: int = FAILED) -> int:
    """Run `work`; what it raises becomes a line for people and an exit code.

    Args:
        work: returns the exit code of what it does.
        wrong_file: exit code for a file that must be mended.
    """
    code = _coded(work, wrong_file)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # What is still buffered must not be tried again at the exit, with a complaint.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return code


def _coded(work: Callable[[], int], wrong_file: int) -> int:
    try:
        code = work()
        # Here, so that a full disk is told like any other fault, and once.
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`).
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        # The option parser's, after its help.
        return DONE if end.code is None else int(end.code)
    except UsageError as error:
        return complain(error, USAGE)
    except NoDaemonError as error:
        return complain(error, NO_DAEMON)
    except ConfigError as error:
        return complain(error, wrong_file if error.file else FAILED)
    except EdgedError as error:
        return complain(error, FAILED)
    except OSError as error:
        from edged.cli.faults import in_words

        return complain(in_words(error), FAILED)
    else:
        return code


def complain(error: object, code: int) -> int:
    """Say on standard error what went wrong and what to do; returns `code`."""
    text = fault(str(error))
    if sys.stderr.isatty():
        from edged.cli import show

        # A terminal alone would break it inside of words.
        room = show.width()
        text = "\n".join(part for line in text.split("\n") for part in show.fitted(line, room))
    with suppress(OSError):
        # Where nobody can be told, the exit code still says it.
        sys.stderr.write(f"{text}\n")
    return code


def _dispatch(arguments: list[str]) -> int:
    for word in arguments:
        _check_text(word)
    _check_empty(arguments)
    verb = arguments[0] if arguments else "--help"
    if verb == "help" and arguments[1:]:
        return _dispatch([arguments[1], "--help"])
    if verb in ("-h", "--help", "help"):
        sys.stdout.write(overview())
        return DONE
    if verb in ("-V", "--version"):
        sys.stdout.write(f"edged {__version__}\n")
        return DONE
    if verb not in VERBS:
        raise UsageError(_unknown(verb, arguments[1:]))
    module = load(verb)
    from edged.cli.parser import Parser

    parser = Parser(verb, VERBS[verb], module.EXAMPLE)
    module.options(parser)
    code: int = module.run(parser.parse(arguments[1:]))
    return code


def _check_empty(arguments: list[str]) -> None:
    """Refuse what a variable of the shell leaves that is not set: it would say another thing."""
    # What follows `--` is another program's.
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "" in own:
        before = own[own.index("") - 1]
        what = before if before.startswith("--") else "an argument"
        raise UsageError(f"{what} is empty: name one (perhaps a variable of the shell is not set)")


def _check_text(word: str) -> None:
    """Refuse bytes that no JSON can carry; Python has them as half characters (PEP 383)."""
    if word.isascii() or not any("\udc80" <= char <= "\udcff" for char in word):
        return
    from edged import wording
    from edged.cli import show

    shown = os.fsencode(word).decode("utf-8", "backslashreplace")
    raise UsageError(
        f"{show.cut(wording.one_line(shown), 60)} is not UTF-8 text: convert it (iconv -t UTF-8)"
    )


def load(verb: str) -> ModuleType:
    """The module of a verb."""
    return import_module(f"edged.cli.{verb.replace('-', '_')}")


def overview() -> str:
    """What `edged --help` prints."""
    width = max(map(len, VERBS)) + 2
    verbs = "\n".join(f"  {name:{width}}{text}" for name, text in VERBS.items())
    return (
        "usage: edged VERB [options]\n\n"
        "A board's abilities as sandboxed tools for AI agents and programs.\n\n"
        f"verbs:\n{verbs}\n\n"
        "edged VERB --help says more; edged --version prints the version.\n\n"
        "example:\n  edged serve --sim &\n  edged call hello name=Ada\n"
    )


def _unknown(verb: str, words: list[str]) -> str:
    from edged.yamlio import nearest

    if verb.startswith("-"):
        return f"unknown option {verb!r}: the verb comes first, then its options; see edged --help"
    told = f"unknown verb {verb!r}: "
    guess = nearest(verb, VERBS)
    if guess and not any("=" in word for word in words):
        return f"{told}did you mean {guess!r}?"
    return f"{told}see edged --help; a tool is called by edged call {verb}"
