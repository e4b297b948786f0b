"""Calls that no door makes: the same call path, and the same rights."""

import asyncio

import msgspec
import pytest

from edged import results
from edged.errands import Errands
from edged.errors import DeniedError, InvalidArgumentsError, ToolUnavailableError, UnknownToolError
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
    await errands.check(core.agent, "login", b'{"user": "ada"}')
    with pytest.raises(InvalidArgumentsError, match="usr"):
        await errands.check(core.agent, "login", b'{"usr": "ada"}')
    with pytest.raises(UnknownToolError):
        await errands.check(core.agent, "no_such", b"")
    limited = msgspec.structs.replace(core.agent, allowed=frozenset({"other"}))
    with pytest.raises(DeniedError):
        await errands.check(limited, "login", b"")
    core.registry.set_switches({"login": False})
    for refused in (
        errands.check(core.agent, "login", b""),
        errands.call(core.agent, "login", b""),
    ):
        with pytest.raises(ToolUnavailableError, match="disabled"):
            await refused
    assert [record.outcome for record in core.audited()] == ["unavailable"], "calls alone"


async def test_call_is_its_callers(core, errands):
    result = await errands.call(core.agent, "login", b'{"user": "ada"}')
    assert result.for_llm == "hello ada of ada@example.org"
    assert [record.tool for record in core.audited()] == ["login"]


async def test_a_job_reaches_the_hidden_tool_that_it_names(core, errands):
    """Nobody searches for what is written down, and no session is there to search in."""
    await errands.check(core.agent, "hidden", b"")
    assert (await errands.call(core.agent, "hidden", b"")).for_llm == "found"
    session = core.control.session(core.agent)
    with pytest.raises(UnknownToolError, match=r"no tool named 'hidden'$"):
        core.dispatcher.start(core.agent, session, "hidden", b"")
    with pytest.raises(UnknownToolError, match="is unlocked: it is hidden, and is called once"):
        core.dispatcher.start(core.owner, core.control.session(core.owner), "hidden", b"")


@pytest.mark.parametrize(("patterns", "is_told"), [(["hidden"], True), (["hid*"], False)])
async def test_a_subagent_is_told_of_the_hidden_tool_that_its_permissions_name(
    core, errands, patterns, is_told
):
    """A whole name was written down; a beginning with `*` only allows what is found."""
    tools = errands.tools(core.agent, tuple(patterns), turns=3)
    for _ in range(3):
        rows = await tools.definitions("mcp")
        assert [row["name"] for row in rows] == ["hidden"] * is_told
        if is_told:
            assert (await tools.call("hidden", b"")).for_llm == "found"
        else:
            with pytest.raises(UnknownToolError):
                await tools.call("hidden", b"")
        tools.turn()


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
