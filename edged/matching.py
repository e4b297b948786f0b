r"""The program of the process that patterns are matched in (`edged.matcher`).

Needs nothing but Python's own modules, so that it starts fast and holds little.
Reads requests from standard input and answers on standard output:

    T SIZE\n  texts, joined by NUL: what is searched from then on; no answer
    P COUNT SIZE\n  pattern -> `TOTAL NUMBER …\n`, or `!what is wrong with it\n`
"""

import re
import resource
import signal
import sys

LIFE_S = 30.0
"""A match that nobody ends, for the daemon is gone, ends by itself."""

MEMORY_MAX = 512 << 20


def match(texts: list[str], pattern: str, count: int) -> str:
    """One answer: of those that match, the ones that do by their first line go first."""
    try:
        search = re.compile(pattern, re.IGNORECASE | re.MULTILINE).search
    except (re.error, OverflowError, RecursionError) as error:
        return "!" + " ".join(str(error).split())
    named: list[int] = []
    others: list[int] = []
    for number, text in enumerate(texts):
        found = search(text)
        if found is not None:
            (named if found.start() <= text.index("\n") else others).append(number)
    best = [*named, *others][:count]
    return " ".join(map(str, (len(named) + len(others), *best)))


def main() -> None:
    """Serve until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    texts: list[str] = []
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while head := source.readline():
        kind, *numbers = head.split()
        data = source.read(int(numbers[-1])).decode()
        if kind == b"T":
            texts = data.split("\0") if data else []
            continue
        signal.setitimer(signal.ITIMER_REAL, LIFE_S)
        answer = match(texts, data, int(numbers[0]))
        signal.setitimer(signal.ITIMER_REAL, 0)
        target.write(answer.encode() + b"\n")
        target.flush()


if __name__ == "__main__":
    main()
