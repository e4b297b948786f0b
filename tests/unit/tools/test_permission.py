"""`request_permission`: what an agent is told, and that it never helps itself."""

import asyncio
import os

import msgspec
import pytest

from edged.control import Decision
from edged.errors import DeniedError, InvalidArgumentsError, NotFoundError
from edged.tools import files, permission


@pytest.fixture(autouse=True)
def tools(core):
    core.add(*files.TOOLS, *permission.TOOLS)


@pytest.fixture
def outside(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    (folder / "file").write_text("text")
    return folder


@pytest.fixture
def call(core):
    async def one(name="request_permission", caller=None, **arguments):
        return await core.call(name, msgspec.json.encode(arguments), caller or core.agent)

    return one


async def test_agent_asks_and_owner_answers(call, core, outside):
    """Specification: "Request user permission for outside-workspace access"."""
    path = str(outside / "file")
    assert (await call("read_file", path=path)).is_error
    asked = await call(path=path, command="cat it", reason="to read it")
    assert asked.structured["status"] == "pending"
    assert (await call("read_file", path=path)).is_error, "asking grants nothing"
    listed = core.control.permissions(core.owner)
    [request] = listed["requests"]
    assert (request["path"], request["command"], request["reason"]) == (
        path,
        "cat it",
        "to read it",
    )
    assert asked.for_user == (
        f"May an agent of {core.agent.user} read {path}? Answer: "
        f"edged grant {request['request_id']} once|session|deny"
    )
    core.control.permit(core.owner, Decision("once", request["request_id"]))
    assert (await call("read_file", path=path)).content[0].text == "text"
    assert (await call("read_file", path=path)).is_error


async def test_call_may_wait_for_the_answer(call, core, outside):
    for word, status in (("session", "granted"), ("deny", "denied")):
        path = str(outside / word)
        waiting = asyncio.ensure_future(call(path=path, wait=60))
        while not core.policy.pending():
            await asyncio.sleep(0)
        core.policy.answer(core.policy.pending()[0].id, word, core.owner)
        assert (await waiting).structured["status"] == status


async def test_denial_is_told_and_not_asked_again(call, core, outside):
    path = str(outside)
    await call(path=path)
    core.control.permit(core.owner, Decision("deny", path=path, user=core.agent.user))
    for name, arguments in (("request_permission", {}), ("list_dir", {})):
        result = await call(name, path=path, **arguments)
        assert result.is_error
        assert "the owner refused" in result.for_llm
    assert core.policy.pending() == []


async def test_what_is_allowed_needs_no_request(call, core, outside):
    assert (await call(path="notes.txt", write=True)).structured["status"] == "granted"
    core.policy.decide(core.agent.user, core.policy.place(str(outside)), "session", core.owner)
    assert "granted it already" in (await call(path=str(outside / "file"))).for_llm
    assert core.policy.pending() == []


@pytest.mark.parametrize("path", ["/officer/user/tools/x", "/officer/tools/hello"])
async def test_what_is_read_only_for_all_is_not_asked_for(call, path):
    result = await call(path=path, write=True)
    assert result.is_error
    assert "read-only" in result.for_llm


async def test_daemons_own_files_are_not_asked_for(call, core):
    result = await call(path=os.path.join(core.data, "token"))
    assert "edged's own" in result.for_llm
    assert core.policy.pending() == []


async def test_agent_lists_answers_and_forgets_nothing(core, outside):
    for act in (
        lambda: core.control.permissions(core.agent),
        lambda: core.control.permit(core.agent, Decision("once", path=str(outside))),
        lambda: core.control.forget_permission(core.agent, "x"),
    ):
        with pytest.raises(DeniedError, match="only an owner"):
            act()


async def test_decision_names_one_thing(core, outside):
    for decision in (Decision("once"), Decision("once", "id", str(outside))):
        with pytest.raises(InvalidArgumentsError, match="one of request_id and path"):
            core.control.permit(core.owner, decision)
    with pytest.raises(InvalidArgumentsError, match="e-mail"):
        core.control.permit(core.owner, Decision("once", path=str(outside), user="../x"))
    with pytest.raises(InvalidArgumentsError, match="absolute"):
        core.control.permit(core.owner, Decision("once", path="relative"))
    with pytest.raises(NotFoundError):
        core.control.permit(core.owner, Decision("once", "nothing"))


async def test_path_form_answers_what_was_asked(call, core, outside):
    """Facts of PicoClaw, 7: `{path, duration}`."""
    path = str(outside / "file")
    await call(path=path)
    core.control.permit(core.owner, Decision("session", path=path, user=core.agent.user))
    assert core.policy.pending() == []
    assert (await call("read_file", path=path)).content[0].text == "text"
