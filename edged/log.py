"""One log format on standard error; journald priorities under systemd.

Never blocks a call for long and never grows: a line is cut at 4 KB, control
characters are shown, not sent.
"""

from __future__ import annotations

import io
import os
import sys

_PRIORITY = {"error": "<3>", "warning": "<4>", "info": "<6>"}
_MAX_LINE = 4096
_quiet = False


def _is_journal() -> bool:
    """Whether standard error itself is the journal's socket.

    The variable alone says nothing: terminals that systemd started hand it on.

    Source: systemd.exec(5), $JOURNAL_STREAM.
    """
    try:
        there = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


_journal = _is_journal()


def quiet(on: bool) -> None:
    """Switch info lines off (for one-shot commands)."""
    global _quiet  # noqa: PLW0603  one process, one log
    _quiet = on


def fault(message: str) -> str:
    """A message for people that is no line of the log, such as the reason of an end.

    Args:
        message: of one or more lines.
    """
    if not _journal:
        return f"edged: {message}"
    return "\n".join(f"{_PRIORITY['error']}{line}" for line in message.split("\n"))


class _Nowhere(io.StringIO):
    """Takes text and keeps none."""

    def write(self, text: str) -> int:
        """Forget it."""
        return len(text)


def _write(level: str, message: str) -> None:
    text = message if message.isprintable() else _printable(message)
    data = text.encode()
    if len(data) > _MAX_LINE:
        text = data[:_MAX_LINE].decode("utf-8", "ignore") + " …"
    prefix = _PRIORITY[level] if _journal else f"edged: {level + ': ' if level != 'info' else ''}"
    try:
        line = f"{prefix}{text}"
        sys.stderr.write(f"{_wrapped(line) if sys.stderr.isatty() else line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads the log (closed pipe): the daemon goes on, and does not end with
        # status 120 for what its last words could not be written.
        sys.stderr = _Nowhere()


def _wrapped(line: str) -> str:
    """A line within the columns of the terminal, broken at spaces."""
    import textwrap  # noqa: PLC0415  where a person looks on

    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return textwrap.fill(
        line,
        max(columns or 80, 40),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


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
