"""Search in the names and descriptions of tools: words, and BM25 over them.

Pure. A name is split as its writer meant it, so that "issue" finds
`mcp_github_create_issue` and `createIssue`.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache

K1 = 1.2
B = 0.75
"""Source: S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework (2009), 3.4."""

NAME_WEIGHT = 2
"""How often the words of a name count beside those of its description."""

WORDS_MAX = 32
"""Words of a query that are looked for."""

PARTS_MAX = 16
"""Words of a pattern that are looked for one after the other."""

_END = "\0"
"""Between two texts; in none."""

# Patterns stay text until their first use: compiling them is the larger part of the import.
_RUN = r"[぀-ヿ㐀-䶿一-鿿豈-﫿]|[^\W_぀-ヿ㐀-䶿一-鿿豈-﫿]+"
"""A run of letters and digits; scripts without spaces by character."""

_LITERAL = r"[A-Za-z0-9_ -]+"
_HUMP = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"

_pattern = cache(re.compile)


def words(text: str) -> list[str]:
    """The words of a text in lower case, in its order.

    A word with humps (`createIssue`, `GitHub`) is there whole, and in its parts;
    a plural counts as its singular.
    """
    return [word for run in _pattern(_RUN).findall(text) for word in _split(run)]


@lru_cache(maxsize=4096)
def _split(run: str) -> tuple[str, ...]:
    whole = _stem(run.casefold())
    if run.islower() or run.isupper() or run.istitle():
        return (whole,)
    parts = _pattern(_HUMP).split(run)
    return (whole, *(_stem(part.casefold()) for part in parts)) if len(parts) > 1 else (whole,)


def _stem(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") else word[:-1]


class Ranking:
    """BM25 over so many texts; made once, asked often."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """Count the words.

        Args:
            texts: name and description of each.
        """
        self._postings: dict[str, tuple[array[int], array[int]]] = {}
        lengths = array("I")
        for number, (name, description) in enumerate(texts):
            counts = Counter(words(name) * NAME_WEIGHT)
            counts.update(words(description))
            lengths.append(counts.total())
            for word, count in counts.items():
                known = self._postings.get(word)
                if known is None:
                    known = self._postings[word] = (array("I"), array("H"))
                known[0].append(number)
                known[1].append(min(count, 0xFFFF))
        self._count = len(lengths)
        average = (sum(lengths) / self._count if self._count else 0) or 1.0
        self._weights = array("f", (K1 * (1 - B + B * n / average) for n in lengths))

    def best(self, query: str, count: int) -> tuple[list[int], int]:
        """The numbers of the `count` best texts, best first, and how many match at all.

        Of equal ones the first goes first.
        """
        scores: dict[int, float] = {}
        weights = self._weights
        for word in list(dict.fromkeys(words(query)))[:WORDS_MAX]:
            numbers, counts = self._postings.get(word, ((), ()))
            found = len(numbers)
            rarity = math.log((self._count - found + 0.5) / (found + 0.5) + 1)
            for number, often in zip(numbers, counts, strict=True):
                score = rarity * often * (K1 + 1) / (often + weights[number])
                scores[number] = scores.get(number, 0.0) + score
        # Not `sorted`: of ten thousand that match, five are wanted.
        from heapq import nsmallest  # noqa: PLC0415  only for a search

        best = nsmallest(count, scores, key=lambda number: (-scores[number], number))
        return best, len(scores)


def literals(pattern: str) -> list[str]:
    """The words that a pattern spells out (`issue`, `pull request|merge`); else none.

    Such a pattern is looked for in time that is linear, wherever it came from.
    """
    parts = pattern.split("|")
    plain = len(parts) <= PARTS_MAX and all(map(_pattern(_LITERAL).fullmatch, parts))
    return [part.lower() for part in parts] if plain else []


class Whole:
    """So many texts as one, in which a word is found at the speed of memory."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Join them.

        Args:
            texts: the first line of each is a name.
        """
        lower = [text.lower().replace(_END, " ") for text in texts]
        self._whole = _END.join(lower)
        # Where each begins, and where its name ends.
        self._begins = array("Q")
        self._names = array("Q")
        place = 0
        for text in lower:
            self._begins.append(place)
            self._names.append(place + text.index("\n"))
            place += len(text) + 1

    def containing(self, parts: Iterable[str], count: int) -> tuple[list[int], int]:
        """The numbers of `count` texts with one of `parts`, and how many there are.

        Args:
            parts: in lower case.
            count: those with one in their name go first, else in their order.
        """
        named: set[int] = set()
        others: set[int] = set()
        for part in parts:
            place = self._whole.find(part)
            while place >= 0:
                number = bisect_right(self._begins, place) - 1
                (named if place < self._names[number] else others).add(number)
                after = number + 1
                if after == len(self._begins):
                    break
                place = self._whole.find(part, self._begins[after])
        others -= named
        return [*sorted(named), *sorted(others)][:count], len(named) + len(others)
