"""Cuts a TOOL.md (or an agent's or a skill's Markdown file) into its YAML and its body.

Pure. Laws: only whole lines are fences (`---`, blanks after it allowed); any bytes give either
a `FrontMatter` or a `ConfigError` with a line; sizes are bounded; line ends become LF.
"""

from __future__ import annotations

import re

import msgspec

from edged.errors import ConfigError

FILE_MAX = 1 << 20
YAML_MAX = 64 << 10

_FENCE = r"(?m)^---[ \t]*$"
_ALMOST_FENCE = r"(?m)^(?:[ \t]+---|---)[^\n]*$"


class FrontMatter(msgspec.Struct, frozen=True):
    """The two parts of one file; line numbers are 1-based lines of the file."""

    yaml_text: str
    body: str
    yaml_first_line: int
    body_first_line: int


def split(data: bytes, file: str) -> FrontMatter:
    """Cuts the bytes of one file at its two fences.

    Args:
        data: UTF-8, with or without a byte order mark; CRLF, CR or LF; at most 1 MiB.
        file: as the user knows it; for messages.

    Raises:
        ConfigError: with the line, and what to write.
    """
    if len(data) > FILE_MAX:
        raise ConfigError(f"larger than {FILE_MAX >> 20} MiB: move text to other files", file=file)
    text = _decoded(data, file)
    opening = re.match(_FENCE, text)
    if opening is None:
        raise ConfigError(
            "the first line must be `---` alone, to open the front matter", file=file, line=1
        )
    closing = re.compile(_FENCE).search(text, opening.end() + 1)
    if closing is None:
        raise _never_closed(text, opening.end() + 1, file)
    yaml_text = text[opening.end() + 1 : closing.start()]
    if len(yaml_text.encode()) > YAML_MAX:
        raise ConfigError(
            f"front matter larger than {YAML_MAX >> 10} KiB: move text to the body",
            file=file,
            line=2,
        )
    body_first_line = 2 + text.count("\n", 0, closing.end())
    return FrontMatter(yaml_text, text[closing.end() + 1 :], 2, body_first_line)


def _decoded(data: bytes, file: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        line = 1 + _lf(before).count("\n")
        raise ConfigError("not UTF-8 text: save the file as UTF-8", file=file, line=line) from None
    return _lf(text)


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _never_closed(text: str, start: int, file: str) -> ConfigError:
    almost = re.compile(_ALMOST_FENCE).search(text, start)
    if almost is None:
        reason, line = "the front matter is never closed: write `---` alone on a line after it", 1
    else:
        reason = "this does not close the front matter: write `---` alone, at the line's beginning"
        line = 1 + text.count("\n", 0, almost.start())
    return ConfigError(reason, file=file, line=line)
