"""What looks like a secret in a command line or a URL, so that nobody is shown it.

Pure. By the names that people give to keys, for the values tell nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "[***]"

_NAME = r"[A-Za-z0-9_.-]*(?:key|token|secret|passwd|password|credentials?|authorization)"
_OPTION = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_PAIR = re.compile(rf"^(-*{_NAME}\s*[=:]\s*)(.+)", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(rf"([?&#;]{_NAME}=)([^&#;\s]+)", re.IGNORECASE)
_LOGIN = re.compile(r"(://)([^/@\s?#]+)@")


def words(given: Iterable[str]) -> list[str]:
    """A command line: the words after `--api-key` and the like, and what `KEY=` has."""
    found: list[str] = []
    is_value = False
    for word in given:
        if is_value and not word.startswith("-"):
            found.append(MASK)
        else:
            found.append(_PAIR.sub(_masked, url(word)) if "://" not in word else url(word))
        is_value = _OPTION.fullmatch(word) is not None
    return found


def url(text: str) -> str:
    """A URL: who logs in, and the values of its query that are called keys."""
    return _QUERY.sub(_masked, _LOGIN.sub(rf"\1{MASK}@", text))


def _masked(found: re.Match[str]) -> str:
    return found[1] + MASK
