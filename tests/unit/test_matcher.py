"""Patterns run where they can be killed (issue 4, part 8)."""

import asyncio
import os
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edged import matching
from edged.errors import InvalidArgumentsError
from edged.matcher import Matcher

TEXTS = ["read_file\nReads.", "create_issue\nOpens an Issue.", "pulls\nLists issues."]
HOSTILE = ["(a+)+$", "(a|a)+$", "(a*)*b", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?:(?:a?){40}){9}b"]  # fmt: skip
BAIT = [f"{'a' * 60}!\n{'a' * 60}!"] * 10


@pytest.fixture
async def matcher():
    made = Matcher(limit_s=0.2)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("issue", [1, 2]),
        ("^issue|ISSUES", [2]),
        (r"^\w+_", [0, 1]),
        (r"reads\.$", [0]),
        (r"file$", [0]),
        ("(?s)read_file.reads", [0]),
        ("nothing+", []),
    ],
)
async def test_a_pattern_is_pythons_without_regard_to_case_by_lines(matcher, pattern, numbers):
    """Facts, section 11: case-insensitive, on name or description."""
    assert await matcher.find(TEXTS, pattern, 5) == (numbers, len(numbers))


async def test_names_go_first_and_no_more_than_wanted(matcher):
    """What a tool is called says more than what is written of it."""
    texts = ["a\nissue", "issue\nb", "issue_2\nc"]
    assert await matcher.find(texts, "i.sue", 2) == ([1, 2], 3)


@pytest.mark.parametrize("pattern", HOSTILE)
async def test_a_hostile_pattern_is_ended_and_the_next_one_is_served(matcher, pattern):
    """The loop turns all the while; nothing is left of the process."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    assert await matcher.find(BAIT, "a+", 1) == ([0], 10)
    hostile = matcher.pid
    try:
        with pytest.raises(InvalidArgumentsError, match=r"pattern: took longer than 0\.2 s"):
            await matcher.find(BAIT, pattern, 5)
    finally:
        counting.cancel()
    assert turns > 3
    assert not os.path.exists(f"/proc/{hostile}")
    assert matcher.pid == 0
    assert await matcher.find(TEXTS, "i.sue", 5) == ([1, 2], 2)


async def test_a_pattern_that_eats_memory_is_refused(matcher):
    """The process may have so much and no more."""
    patient = Matcher(limit_s=20.0)
    texts = ["a\n" + "ab" * 4_000_000]
    try:
        with pytest.raises(InvalidArgumentsError, match="memory"):
            await patient.find(texts, r"(?s)(?:ab|.)*\Zx", 1)
    finally:
        patient.close()


async def test_one_process_serves_many_patterns_and_gets_new_texts(matcher):
    """Texts are sent when they are others."""
    assert await matcher.find(TEXTS, "i.sue", 5) == ([1, 2], 2)
    pid = matcher.pid
    assert await matcher.find(TEXTS, "r.ad", 5) == ([0], 1)
    assert await matcher.find(["a\0b\nc", "é\ud800\nissue"], "i.sue|^é", 5) == ([1], 1)
    assert matcher.pid == pid


async def test_the_process_ends_when_nobody_needs_it():
    """Idle memory is a feature."""
    matcher = Matcher(idle_s=0.01)
    await matcher.find(TEXTS, "i.sue", 5)
    async with asyncio.timeout(10):
        while matcher.pid:
            await asyncio.sleep(0.01)
    assert await matcher.find(TEXTS, "i.sue", 5) == ([1, 2], 2)
    matcher.close()


async def test_a_search_that_is_given_up_leaves_nothing_behind():
    """Its answer would else be taken for the next one's."""
    matcher = Matcher(limit_s=30.0)
    await matcher.find(BAIT, "a+", 1)
    pid = matcher.pid
    search = asyncio.create_task(matcher.find(BAIT, HOSTILE[0], 5))
    for _ in range(5):
        await asyncio.sleep(0)
    search.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search
    assert not os.path.exists(f"/proc/{pid}")
    assert await matcher.find(TEXTS, "i.sue", 5) == ([1, 2], 2)
    matcher.close()


async def test_a_process_that_was_killed_is_started_again(matcher):
    """By the kernel, when memory is short, or by an owner."""
    await matcher.find(TEXTS, "i.sue", 5)
    os.kill(matcher.pid, 9)
    os.waitid(os.P_PID, matcher.pid, os.WEXITED | os.WNOWAIT)
    assert await matcher.find(TEXTS, "i.sue", 5) == ([1, 2], 2)


# Python says so of `[[`; the process of the patterns is not told (-W ignore).
@pytest.mark.filterwarnings("ignore:Possible :FutureWarning")
@settings(max_examples=300)
@given(st.text(max_size=12))
@example("[[")
def test_any_pattern_gets_one_line(pattern):
    """What Python's own compiler says goes out, whatever it is."""
    answer = matching.match(TEXTS, pattern, 5)
    assert "\n" not in answer
    try:
        compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except re.error:
        assert answer.startswith("!")
        return
    assert int(answer.split()[0]) == sum(compiled.search(text) is not None for text in TEXTS)
