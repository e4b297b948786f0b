"""What is indexed, for whom, and when again."""

import asyncio

import msgspec
import pytest

from edged import results
from edged.errors import BusyError, InvalidArgumentsError
from edged.finder import USERS_MAX, WAITING_MAX, Finder
from edged.identity import Caller
from edged.registry import Registry
from edged.sections import Discovery
from edged.tool import Tool

ADA = Caller("ada@example.org", "agent", "", "unix")
BOB = Caller("bob@example.org", "agent", "", "unix")


class Nothing(msgspec.Struct):
    pass


class FakeMatcher:
    """Remembers what it was asked; answers when it may."""

    def __init__(self):
        self.asked, self.go = [], asyncio.Event()

    async def find(self, texts, pattern, count):
        self.asked.append(texts)
        await self.go.wait()
        return [], 0

    def close(self):
        self.go.set()


def hidden(name, **facts):
    return Tool(
        name,
        lambda _params, _ctx: results.text(""),
        description=facts.pop("description", f"Does {name}."),
        make_type=lambda: Nothing,
        hidden=True,
        **facts,
    )


@pytest.fixture
def registry():
    made = Registry()
    made.register(hidden("create_issue"))
    return made


@pytest.fixture
async def finder(registry):
    made = Finder(registry, Discovery(ttl=3, max_search_results=2))
    yield made
    made.close()


async def names(finder, query, caller=ADA):
    return [tool.name for tool in (await finder.by_words(caller, query)).tools]


async def test_what_is_found_is_as_the_settings_have_it(finder, registry):
    """Contract, section 11: `ttl`, `max_search_results`."""
    for number in range(5):
        registry.register(hidden(f"deep_{number}", label="Submarine"))
    for search in (finder.by_words, finder.by_pattern):
        found = await search(ADA, "submarine")
        assert [tool.name for tool in found.tools] == ["deep_0", "deep_1"]
        assert (found.total, found.turns) == (5, 3)


async def test_a_change_of_the_tools_is_seen_by_the_next_search(finder, registry):
    """The index is cached by the registry's version."""
    assert await names(finder, "issue") == ["create_issue"]
    registry.register(hidden("list_issues"))
    assert await names(finder, "issue") == ["create_issue", "list_issues"]
    registry.unregister("create_issue")
    assert await names(finder, "issue") == ["list_issues"]
    registry.set_switches({"list_issues": False})
    assert await names(finder, "issue") == []


async def test_each_user_finds_its_own(finder, registry):
    """Contract, section 3: a user's own tools."""
    registry.replace_set(ADA.user, [hidden("my_issue", source="/ada")])
    assert await names(finder, "issue", ADA) == ["create_issue", "my_issue"]
    assert await names(finder, "issue", BOB) == ["create_issue"]


async def test_the_same_tools_are_not_indexed_again(registry):
    """A switch of another tool, or another user who sees the same, costs nothing."""
    matcher = FakeMatcher()
    matcher.go.set()
    finder = Finder(registry, Discovery(), matcher)
    await finder.by_pattern(ADA, "i.")
    registry.touch()
    await finder.by_pattern(ADA, "i.")
    await finder.by_pattern(BOB, "i.")
    for number in range(USERS_MAX):
        await finder.by_pattern(msgspec.structs.replace(BOB, user=f"u{number}@x.org"), "i.")
    await finder.by_pattern(ADA, "i.")
    assert all(texts is matcher.asked[0] for texts in matcher.asked)
    assert len(finder._shelves) == USERS_MAX


async def test_one_caller_cannot_fill_the_queue(registry):
    """Architecture, laws: every queue is bounded; others get their turn."""
    matcher = FakeMatcher()
    finder = Finder(registry, Discovery(), matcher)
    searches = [asyncio.ensure_future(finder.by_pattern(ADA, "i.")) for _ in range(WAITING_MAX)]
    while len(matcher.asked) < WAITING_MAX:
        await asyncio.sleep(0)
    with pytest.raises(BusyError, match="4 searches of ada@example.org"):
        await finder.by_pattern(ADA, "i.")
    other = asyncio.ensure_future(finder.by_pattern(BOB, "i."))
    matcher.go.set()
    await asyncio.gather(*searches, other)
    assert not (await finder.by_pattern(ADA, "i.")).tools


async def test_where_nothing_is_hidden_plain_words_start_nothing():
    """No process for an empty list."""
    matcher = FakeMatcher()
    finder = Finder(Registry(), Discovery(), matcher)
    assert (await finder.by_pattern(ADA, "issue|pull request")).total == 0
    assert matcher.asked == []


async def test_a_wrong_pattern_is_told_of_where_nothing_is_hidden_too():
    """Else its writer takes it for a right one that finds nothing."""
    finder = Finder(Registry(), Discovery())
    try:
        with pytest.raises(InvalidArgumentsError, match="pattern: is no regular expression"):
            await finder.by_pattern(ADA, "(")
        assert (await finder.by_pattern(ADA, ".*")).total == 0
    finally:
        finder.close()
