"""One log format on standard error; journald priorities under systemd.

Never blocks a call for long and never grows: a line is cut at 4 KB, control
characters are shown, not sent.
"""

from __future__ import annotations

import os
import sys

_PRIORITY = {"error": "<3>", "warning": "<4>", "info": "<6>", "debug": "<7>"}
_MAX_LINE = 4096
_journal = "JOURNAL_STREAM" in os.environ
_quiet = False


def quiet(on: bool) -> None:
    """Switch info and debug lines off (for one-shot commands)."""
    global _quiet  # noqa: PLW0603  one process, one log
    _quiet = on


def _write(level: str, message: str) -> None:
    text = message if message.isprintable() else _printable(message)
    if len(text) > _MAX_LINE:
        text = text[:_MAX_LINE] + " …"
    prefix = _PRIORITY[level] if _journal else f"edged: {level + ': ' if level != 'info' else ''}"
    try:
        sys.stderr.write(f"{prefix}{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads the log (closed pipe): the daemon goes on.
        return


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def error(message: str) -> None:
    """Something failed and was given up."""
    _write("error", message)


def warning(message: str) -> None:
    """Something is wrong and edged goes on."""
    _write("warning", message)


def info(message: str) -> None:
    """A fact of the daemon's life."""
    if not _quiet:
        _write("info", message)
