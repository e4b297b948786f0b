"""Calls that no door makes: the same call path, and the same rights."""

import asyncio

import msgspec
import pytest

from edged import results
from edged.errands import Errands
from edged.errors import DeniedError, InvalidArgumentsError, ToolUnavailableError, UnknownToolError
from edged.registry import Session
from edged.tool import tool


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str = ""
    password: str = ""


@tool("login", sensitive=frozenset({"password"}))
def login(params: Login, ctx) -> results.Result:
    """Greets."""
    return results.text(f"hello {params.user} of {ctx.caller.user}")


@tool("hidden", hidden=True)
def hidden(_params: Login, _ctx) -> results.Result:
    """Is promoted first."""
    return results.text("found")


@pytest.fixture
def errands(core):
    core.add(login, hidden)
    return Errands(core.dispatcher, lambda _: None)


async def test_check_refuses_what_a_call_would_be_refused(core, errands):
    """Contract, section 1: checked when it is set up, and again when it runs."""
    await errands.check(core.agent, None, "login", b'{"user": "ada"}')
    with pytest.raises(InvalidArgumentsError, match="usr"):
        await errands.check(core.agent, None, "login", b'{"usr": "ada"}')
    with pytest.raises(UnknownToolError):
        await errands.check(core.agent, None, "no_such", b"")
    limited = msgspec.structs.replace(core.agent, allowed=frozenset({"other"}))
    with pytest.raises(DeniedError):
        await errands.check(limited, None, "login", b"")
    core.registry.set_switches({"login": False})
    for refused in (
        errands.check(core.agent, None, "login", b""),
        errands.call(core.agent, "login", b""),
    ):
        with pytest.raises(ToolUnavailableError, match="disabled"):
            await refused
    assert [record.outcome for record in core.audited()] == ["unavailable"], "calls alone"


async def test_call_is_its_callers(core, errands):
    result = await errands.call(core.agent, "login", b'{"user": "ada"}')
    assert result.for_llm == "hello ada of ada@example.org"
    assert [record.tool for record in core.audited()] == ["login"]


async def test_hidden_tool_is_reached_where_its_caller_had_found_it(core, errands):
    """Contract, section 9: promoted in the session in which the job was made."""
    session = Session("s", core.clock, by_clock=False)
    with pytest.raises(UnknownToolError):
        await errands.check(core.agent, session, "hidden", b"")
    session.promote(["hidden"], 1)
    await errands.check(core.agent, session, "hidden", b"")
    assert (await errands.call(core.agent, "hidden", b"")).for_llm == "found"


async def test_sensitive_arguments_are_not_shown(core, errands):
    """Contract, section 7."""
    given = {"user": "ada", "password": "secret"}
    assert errands.shown(core.agent.user, "login", given) == {"user": "ada"}
    assert errands.shown(core.agent.user, "gone", given) == {}


async def test_users_own_tools_are_looked_for_first(core):
    """After a restart nobody may have asked for them yet."""
    asked = []

    def fresh(user):
        asked.append(user)
        found = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: (core.add(login), found.set_result(None)))
        return found

    errands = Errands(core.dispatcher, fresh)
    assert not (await errands.call(core.agent, "login", b"")).is_error
    assert asked == [core.agent.user]
