"""The one call path (contract, sections 1, 7 and 8), over real services."""

import asyncio
import threading

import msgspec
import pytest

from edged import dispatch, results
from edged.dispatch import DETAIL_MAX, IN_FLIGHT_MAX, MAX_DEPTH, STORING_MAX, WRITERS, Dispatcher
from edged.errors import (
    BusyError,
    CallTimeoutError,
    DeniedError,
    InvalidArgumentsError,
    NoDeviceError,
    StoppingError,
    ToolUnavailableError,
    UnknownToolError,
)
from edged.identity import Caller
from edged.media import Media
from edged.registry import Session
from edged.results import MASK, MAX_BYTES, Image, Late, ResourceLink, Result, Text
from edged.tool import Context, tool

BOUND_S = 10.0


class Say(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str = ""
    password: str = ""


class Other(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()


@tool("say")
def say(params: Say, _ctx: Context) -> Result:
    """Says at once."""
    return results.text(params.text)


@tool("say_later")
async def say_later(params: Say, _ctx: Context) -> Result:
    """Says after a moment."""
    await asyncio.sleep(0)
    return results.text(params.text)


@tool("other")
async def other(params: Other, ctx: Context) -> Result:
    """Runs another tool."""
    return await ctx.call(params.name, bytes(params.arguments))


class Gate:
    """A tool that waits until the test says so, and what happened to it."""

    def __init__(self, **facts):
        self.started, self.go, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.context = None

        @tool("gate", **facts)
        async def gate(params: Say, ctx: Context) -> Result:
            """Waits."""
            self.context = ctx
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                ctx.update([Text("too late")])
                raise
            return results.text(params.text or "done")

        self.tool = gate


@pytest.fixture
async def gate(core):
    made = Gate()
    core.add(made.tool)
    return made


def fails(error, name="fails", *, wait=False, **facts):
    """A tool that raises."""

    def at_once(params: Login, ctx: Context) -> Result:
        raise error

    async def later(params: Login, ctx: Context) -> Result:
        raise error

    return tool(name, **facts)(later if wait else at_once)


def body(**arguments):
    return msgspec.json.encode(arguments)


# Running ----------------------------------------------------------------------------------


async def test_a_plain_function_is_over_before_start_returns(core):
    """The hot path: no task, no loop turn."""
    core.add(say)
    call = core.dispatcher.start(core.owner, None, "say", body(text="hi"))
    assert call.done
    assert call.task is None
    assert call.result.for_llm == "hi"
    assert core.dispatcher.running == 0


async def test_everything_else_is_one_task(core):
    """And counts as running until its end."""
    core.add(say_later)
    call = core.dispatcher.start(core.owner, None, "say_later", body(text="hi"))
    assert (call.done, core.dispatcher.running) == (False, 1)
    result = await call.wait()
    assert (result.for_llm, result.is_error) == ("hi", False)
    assert core.dispatcher.running == 0


async def test_a_result_has_its_call_and_its_time(core, gate):
    """Contract, section 7: `call_id` and `duration_ms`."""
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await gate.started.wait()
    core.clock.advance(1.5)
    gate.go.set()
    result = await call.wait()
    assert (result.call_id, result.duration_ms) == (call.id, 1500.0)
    again = core.dispatcher.start(core.owner, None, "gate", b"")
    assert again.id != call.id
    again.cancel()


async def test_a_callback_at_the_end_is_called_once_also_after_it(core, gate):
    """Doors answer from it."""
    ended = []
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    call.when_done(ended.append)
    assert not ended
    gate.go.set()
    await call.wait()
    assert ended == [call]
    call.when_done(ended.append)
    assert ended == [call, call]


async def test_a_result_is_never_empty(core):
    """Contract, section 7: `(no output)`."""
    core.add(say, tool("none")(lambda_result(Result([]))))
    assert (await core.call("say")).content == [Text("(no output)")]
    assert (await core.call("none")).for_llm == "(no output)"


def lambda_result(result):
    def give(params: Say, ctx: Context) -> Result:
        return result

    return give


async def test_a_tool_that_returns_no_result_has_failed(core):
    """A tool's fault is the call's failure and nothing more."""

    async def nothing(params: Say, ctx: Context) -> Result:
        return None

    core.add(tool("sync")(lambda_result(None)), tool("later")(nothing))
    for name in ("sync", "later"):
        result = await core.call(name)
        assert result.is_error


# How many ---------------------------------------------------------------------------------


ADA = Caller("local", "agent", "", "unix", "uid 1001")


async def test_one_uids_calls_in_flight_are_bounded(core, gate):
    """However many connections it has; each that ends makes room for one."""
    calls = [core.dispatcher.start(ADA, None, "gate", b"") for _ in range(IN_FLIGHT_MAX)]
    core.add(say, say_later)
    for name in ("gate", "say", "say_later"):
        with pytest.raises(BusyError, match="512 calls of uid 1001 are in flight"):
            core.dispatcher.start(ADA, None, name, b"")
    assert core.audited()[-1].outcome == "busy"
    calls.pop().cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await core.dispatcher.start(ADA, None, "say_later", b"").wait()
    for call in calls:
        call.cancel()
    await asyncio.wait([call.task for call in calls])
    assert core.dispatcher._in_flight == {}


@pytest.mark.parametrize(
    "other_caller",
    [
        Caller("local", "agent", "", "unix", "uid 1002"),
        Caller("ada@example.org", "agent", "", "internal"),
        Caller("local", "owner", "", "unix", "uid 1001"),
        Caller("local", "owner", "", "unix", "uid 0"),
    ],
)
async def test_ones_calls_in_flight_are_not_anothers_nor_the_owners(core, gate, other_caller):
    """Whoever must switch off gets through."""
    calls = [core.dispatcher.start(ADA, None, "gate", b"") for _ in range(IN_FLIGHT_MAX)]
    core.add(say_later)
    assert not (await core.dispatcher.start(other_caller, None, "say_later", b"").wait()).is_error
    for call in calls:
        call.cancel()
    await asyncio.wait([call.task for call in calls])


async def test_a_tool_cannot_get_around_the_bound_by_calling(core, gate):
    """Its calls are its caller's."""
    core.add(other)
    calls = [core.dispatcher.start(ADA, None, "gate", b"") for _ in range(IN_FLIGHT_MAX - 1)]
    inner = core.dispatcher.start(ADA, None, "other", body(name="gate", arguments={}))
    result = await inner.wait()
    assert result.is_error
    assert "in flight" in result.for_llm
    for call in calls:
        call.cancel()
    await asyncio.wait([call.task for call in calls])


async def test_arguments_of_agents_in_flight_are_bounded_all_together(core, gate, monkeypatch):
    """512 calls of 16 MiB each might wait for a sandbox: 8 GiB."""
    monkeypatch.setattr(dispatch, "GIVEN_MAX", 4 << 20)
    dispatcher = Dispatcher(core.registry, core.control.services, core.spawn)
    long, calls = body(text="x" * (1 << 20)), []
    with pytest.raises(BusyError, match="the arguments of other calls take too much memory"):
        for _ in range(10):
            calls.append(dispatcher.start(ADA, None, "gate", long))
    assert 0 < sum(call.given.size for call in calls) == dispatcher._given.used < 4 << 20
    # Short ones come through, and the owner's; one that is refused is not counted.
    core.add(say)
    for caller, raw in ((ADA, body(text="x" * 4096)), (core.owner, long)):
        assert not (await dispatcher.start(caller, None, "say", raw).wait()).is_error
    calls.pop().cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(InvalidArgumentsError):
        dispatcher.start(ADA, None, "gate", body(odd="x" * (1 << 20)))
    calls.append(dispatcher.start(ADA, None, "gate", long))
    for call in calls:
        call.cancel()
    await asyncio.wait([call.task for call in calls])
    assert dispatcher._given.used == 0


# Time and cancelling ----------------------------------------------------------------------


async def test_a_call_over_its_time_is_ended_and_says_so(core):
    """The deadline is set once, here; the result is an error for the model to act on."""
    made = Gate(timeout_s=60.0)
    core.add(made.tool)
    result = await core.call("gate", timeout_s=1e-6)
    assert (result.is_error, result.for_llm) == (True, "timed out after 1e-06 s")
    # The deadline came before its first step, or it was told: either way it is over.
    assert core.dispatcher.running == 0
    assert core.audited()[-1].outcome == "timeout"


async def test_a_running_tool_is_cancelled_at_its_deadline(core):
    """It can put things in order."""
    made = Gate(timeout_s=0.01)
    core.add(made.tool)
    result = await core.call("gate", timeout_s=600)
    assert result.for_llm == "timed out after 0.01 s"
    assert made.cancelled.is_set()


async def test_the_time_asked_for_never_exceeds_the_tools_own(core):
    """Contract: a hard maximum always holds (facts, fault 8)."""
    made = Gate(timeout_s=2.0, own_deadline=True)
    core.add(made.tool)
    for asked, given in ((None, 2.0), (1.0, 1.0), (3600.0, 2.0)):
        made.started.clear()
        call = core.dispatcher.start(core.owner, None, "gate", b"", timeout_s=asked)
        await made.started.wait()
        assert made.context.timeout_s == given
        call.cancel()


@pytest.mark.parametrize("asked", [0, -1.0, float("nan")])
async def test_no_time_at_all_is_refused(core, asked):
    """It cannot be what the caller wants."""
    core.add(say)
    with pytest.raises(InvalidArgumentsError, match="timeout: must be above 0"):
        core.dispatcher.start(core.owner, None, "say", b"", timeout_s=asked)


@pytest.mark.parametrize("wait", [False, True])
async def test_a_time_out_inside_a_tool_is_not_the_calls(core, wait):
    """A device's or a server's silence is told as such."""
    core.add(fails(TimeoutError("no answer from the meter"), wait=wait))
    assert (await core.call("fails")).for_llm == "TimeoutError: no answer from the meter"
    core.add(fails(CallTimeoutError("the bus is stuck"), wait=wait))
    assert (await core.call("fails")).for_llm == "the bus is stuck"
    assert [r.outcome for r in core.audited()] == ["internal", "timeout"]


async def test_a_tool_that_keeps_its_own_deadline_is_not_cut_off(core):
    """A sandbox ends the whole tree and keeps the output so far."""
    made = Gate(timeout_s=1e-6, own_deadline=True)
    core.add(made.tool)
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await made.started.wait()
    made.go.set()
    assert (await call.wait()).for_llm == "done"


async def test_a_cancelled_call_has_no_result(core, gate):
    """Facts, 1.4: nothing more for it."""
    ended, updates = [], []
    call = core.dispatcher.start(core.owner, None, "gate", b"", on_update=updates.append)
    call.when_done(ended.append)
    await gate.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.wait()
    assert (call.done, call.cancelled, call.result) == (True, True, None)
    assert gate.cancelled.is_set()
    assert ended == [call]
    assert not updates, "an update after it was cancelled"
    assert core.audited()[-1].outcome == "cancelled"
    call.cancel()


async def test_a_call_cancelled_before_its_first_step_still_ends(core):
    """Two lines in one packet: a call and its cancellation."""
    core.add(say_later)
    session = Session("s", core.clock, by_clock=False)
    session.promote(["x"], 1)
    ended = []
    call = core.dispatcher.start(core.owner, session, "say_later", b"")
    call.when_done(ended.append)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.wait()
    assert ended == [call]
    assert core.dispatcher.running == 0
    # The silent session's round is over, and so is its turn.
    await core.call("say_later", session=session)
    assert not session.promoted()


async def test_a_cancel_that_comes_too_late_changes_nothing(core, gate):
    """Facts, fault 9: cancel racing with completion."""
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await gate.started.wait()
    gate.go.set()
    await call.wait()
    call.cancel()
    assert (call.cancelled, call.result.for_llm) == (False, "done")


async def test_a_tool_that_ends_well_although_it_was_cancelled_has_a_result(core):
    """Exactly one end, whichever it is."""
    started = asyncio.Event()

    @tool("stubborn")
    async def stubborn(params: Say, ctx: Context) -> Result:
        """Ends in its own way."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return results.text("switched off first")

    core.add(stubborn)
    call = core.dispatcher.start(core.owner, None, "stubborn", b"")
    await started.wait()
    call.cancel()
    assert (await call.wait()).for_llm == "switched off first"


async def test_a_waiter_that_goes_away_takes_its_call_with_it(core, gate):
    """A door's request is cancelled; so is what it asked for."""
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    waiter = asyncio.create_task(call.wait())
    await gate.started.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await gate.cancelled.wait()


async def test_a_callback_that_fails_ends_nobody_elses_call(core, gate):
    """A fault of one door."""
    seen = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    first = core.dispatcher.start(core.owner, None, "gate", b"")
    second = core.dispatcher.start(core.owner, None, "gate", b"")

    def broken(_call):
        raise ValueError("the door is broken")

    first.when_done(broken)
    gate.go.set()
    assert (await second.wait()).for_llm == "done"
    assert (await first.wait()).for_llm == "done"
    assert [str(error) for error in seen] == ["the door is broken"]


# Failing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [False, True])
async def test_an_exception_is_a_failure_without_its_traceback(core, wait, capsys):
    """Contract, section 7: a returned flag and a thrown exception are the same failure."""
    core.add(fails(ValueError("the valve is stuck"), wait=wait))
    result = await core.call("fails")
    assert (result.is_error, result.for_llm) == (True, "ValueError: the valve is stuck")
    assert "Traceback" not in str(msgspec.to_builtins(result))
    assert core.audited()[-1].outcome == "internal"
    assert "tool fails raised ValueError: the valve is stuck at " in capsys.readouterr().err


@pytest.mark.parametrize("wait", [False, True])
async def test_a_fault_that_edged_reports_has_its_code_in_the_trail(core, wait, capsys):
    """Errors have stable codes; they are the model's to act on and no fault to log."""
    core.add(fails(NoDeviceError("nothing at 0x76"), wait=wait))
    result = await core.call("fails")
    assert (result.is_error, result.for_llm) == (True, "nothing at 0x76")
    assert core.audited()[-1].outcome == "no_device"
    assert not capsys.readouterr().err


async def test_a_returned_failure_is_one(core):
    """As above."""
    core.add(tool("no")(lambda_result(results.failure("no"))))
    assert (await core.call("no")).is_error
    assert core.audited()[-1].outcome == "error"
    assert core.audited()[-1].detail == "no"


async def test_text_that_no_door_can_send_is_mended(core):
    """Names of files may hold any byte; a reply in broken UTF-8 would end a connection."""
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    odd = Result([Text(name), Text("é")], structured={name: [name, 1]})
    updates = []

    async def sends(params: Say, ctx: Context) -> Result:
        ctx.update([Text(name)])
        return odd

    core.add(tool("odd")(sends), fails(OSError(2, "No such file", name)))
    result = await core.call("odd", on_update=updates.append)
    assert result.content[0] == Text("caf?")
    assert result.structured == {"caf?": ["caf?", 1]}
    assert updates == [[Text("caf?")]]
    msgspec.json.encode(result)
    assert "caf" in (await core.call("fails")).for_llm
    core.trail.flush()
    assert core.trail.lost == 0


async def test_a_result_that_is_no_json_is_a_failure(core):
    """Doors never meet it."""
    odd = ResourceLink("file:///x", "caf\udce9")
    core.add(tool("odd")(lambda_result(Result([odd]))))
    result = await core.call("odd")
    assert result.is_error
    assert result.for_llm.startswith("the tool's result is not JSON")
    fine = Result([ResourceLink("file:///x", "café")], for_user="é")
    core.add(tool("fine")(lambda_result(fine)))
    assert (await core.call("fine")).content == fine.content


# Being refused ----------------------------------------------------------------------------


async def refused(core, error, name="say", caller=None, **options):
    with pytest.raises(error) as caught:
        core.dispatcher.start(caller or core.owner, None, name, b"{}", **options)
    return str(caught.value)


async def test_an_unknown_tool_is_refused_and_audited(core):
    """Contract, section 1: audited by the same code, refused calls too."""
    await refused(core, UnknownToolError, "nothing")
    (record,) = core.audited()
    assert (record.tool, record.outcome, record.arguments) == ("nothing", "unknown_tool", None)
    await refused(core, UnknownToolError, "x" * 100_000)
    assert len(core.audited()[-1].tool) == 128


async def test_arguments_that_do_not_fit_are_refused_and_not_kept(core):
    """They may hold a secret in any place."""
    core.add(say)
    with pytest.raises(InvalidArgumentsError):
        core.dispatcher.start(core.owner, None, "say", b'{"password": "hunter2"}')
    (record,) = core.audited()
    assert (record.outcome, record.arguments) == ("invalid_arguments", None)


async def test_a_name_that_is_unknown_is_told_to_the_caller_alone(core):
    """A model may take a secret for the name of an input."""
    core.add(say)
    with pytest.raises(InvalidArgumentsError, match="hunter2"):
        core.dispatcher.start(core.owner, None, "say", b'{"hunter2-hunter2": 1, "text": 5}')
    (record,) = core.audited()
    assert "hunter2" not in record.detail
    assert "unknown input" in record.detail
    assert "text: must be" in record.detail


async def test_a_tool_that_is_off_is_refused_with_what_to_do(core):
    """409 on HTTP; the words name the command."""
    core.add(say.switched_off())
    text = await refused(core, ToolUnavailableError)
    assert text == "tool 'say' is disabled: the owner can switch it on: edged tools --enable say"
    assert core.audited()[-1].outcome == "unavailable"


async def test_a_blocked_tool_is_refused_with_its_remedy(core):
    """Contract, section 6: reason codes."""
    blocked = tool(
        "say", status="blocked", reason_code="requires_runtime", problem="no Node: install it"
    )(say.run)
    core.add(blocked)
    text = await refused(core, ToolUnavailableError)
    assert text == "tool 'say' is blocked (requires_runtime): no Node: install it"


async def test_a_tool_may_only_call_what_it_declares(core):
    """Contract, section 10, `calls:`; also through a tool that calls others."""
    core.add(say, other)
    inside = msgspec.structs.replace(core.agent, allowed=frozenset({"other"}), depth=1)
    assert "add it to `calls:`" in await refused(core, DeniedError, caller=inside)
    result = await core.call("other", body(name="say"), inside)
    assert result.is_error
    assert "this tool may not call 'say'" in result.for_llm
    assert {r.outcome for r in core.audited()} == {"denied"}


async def test_tools_that_call_tools_stop_somewhere(core):
    """A loop of tools ends with an error that says so."""
    core.add(other)

    @tool("loop")
    async def loop(params: Say, ctx: Context) -> Result:
        """Calls itself."""
        return await ctx.call("loop", b"")

    core.add(loop)
    result = await core.call("loop")
    assert result.for_llm == f"tools called tools {MAX_DEPTH} deep: 'loop' is not called"
    assert len(core.audited()) == MAX_DEPTH + 2


async def test_a_nested_call_is_its_callers_own(core):
    """Contract, section 1: the right to the inner one too, with its caller's identity."""
    seen = []

    def who(params: Say, ctx: Context) -> Result:
        seen.append(ctx)
        return results.text("me")

    core.add(other, tool("who")(who))
    session = Session("s", core.clock, by_clock=False)
    result = await core.call("other", body(name="who"), core.agent, session)
    assert result.for_llm == "me"
    assert (seen[0].caller.user, seen[0].caller.depth) == (core.agent.user, 1)
    assert seen[0].session is session
    assert [r.tool for r in core.audited()] == ["who", "other"]


async def test_a_hidden_tool_needs_its_promotion_from_inside_too(core):
    """Contract, section 9; a promotion by one tool serves the next."""

    def finds(params: Say, ctx: Context) -> Result:
        ctx.promote(["secret_tool", "say", "nothing"], 1)
        return results.text("found")

    core.add(other, say, tool("secret_tool", hidden=True)(say.run), tool("finds")(finds))
    session = Session("s", core.clock, by_clock=False)
    assert (await core.call("other", body(name="secret_tool"), session=session)).is_error
    await core.call("finds", session=session)
    assert session.promoted() == {"secret_tool"}
    arguments = body(name="secret_tool", arguments={"text": "hi"})
    assert (await core.call("other", arguments, session=session)).for_llm == "hi"
    assert not session.promoted()
    await core.call("finds")


async def test_an_inner_call_ends_with_its_outer_one(core, gate):
    """Cancel ends the whole tree."""
    core.add(other)
    call = core.dispatcher.start(core.owner, None, "other", body(name="gate"))
    await gate.started.wait()
    call.cancel()
    await gate.cancelled.wait()
    with pytest.raises(asyncio.CancelledError):
        await call.wait()


async def test_a_tool_is_looked_at_again_before_it_runs(core):
    """A TOOL.md that was edited a moment ago."""
    new = tool("say")(lambda_result(results.text("new")))

    def renew(_user):
        core.add(new)
        return True

    core.add(tool("say", renew=renew)(say.run), tool("same", renew=lambda _user: False)(say.run))
    assert (await core.call("say")).for_llm == "new"
    assert (await core.call("same", body(text="as before"))).for_llm == "as before"


# Secrets ----------------------------------------------------------------------------------


async def test_sensitive_inputs_are_nowhere_but_in_the_tool(core, capsys):
    """Contract, section 7: absent from events, logs, errors, updates and the audit trail."""
    secret, updates = "hunter2-hunter2", []

    async def login(params: Login, ctx: Context) -> Result:
        ctx.update([Text(f"trying {params.password}")])
        if params.user == "bad":
            raise ValueError(f"{params.password} is wrong")
        if params.user == "err":
            return results.failure("x" * (DETAIL_MAX - 5) + params.password)
        return results.text(f"in with {params.password}", structured={"with": params.password})

    core.add(tool("login", sensitive=frozenset({"password"}))(login))
    for user in ("ada", "bad", "err"):
        raw = body(user=user, password=secret)
        result = await core.call("login", raw, on_update=updates.append)
        assert secret not in str(msgspec.to_builtins(result))
    assert (await core.call("login", body(user="ada", password=secret))).structured == {
        "with": "[***]"
    }
    shown = [msgspec.to_builtins(one) for one in (*core.events.since(0), *core.audited())]
    everything = str(shown) + str(updates) + capsys.readouterr().err
    assert "hunter2" not in everything
    assert core.audited()[0].arguments == {"user": "ada"}
    assert updates[0] == [Text("trying [***]")]


async def test_short_sensitive_inputs_are_absent_where_results_may_show_them(core, capsys):
    """Only what has six characters or more is masked in results; the rest holds for any."""
    updates = []

    async def unlock(params: Login, ctx: Context) -> Result:
        ctx.update([Text(f"pin {params.password}")])
        return results.failure(f"pin {params.password} is wrong")

    core.add(tool("unlock", sensitive=frozenset({"password"}))(unlock))
    result = await core.call("unlock", body(password="9731"), on_update=updates.append)
    assert result.for_llm == "pin 9731 is wrong"
    assert updates == [[Text("pin [***]")]]
    assert core.audited()[-1].detail == "pin [***] is wrong"


async def test_a_secret_of_a_call_is_one_of_the_calls_that_it_makes(core, capsys):
    """The inner call is logged, its events are published, its tool is another's."""
    updates = []

    async def login(params: Login, ctx: Context) -> Result:
        assert params.password in ctx.masked
        raw = msgspec.json.encode({"text": f"pw={params.password}"})
        return await ctx.call("say" if params.user else "deep", raw)

    async def deep(params: Say, ctx: Context) -> Result:
        inner = await ctx.call("say", msgspec.json.encode({"text": params.text}))
        return results.failure(f"{params.text} {inner.for_llm}")

    facts = {"sensitive": frozenset({"password"})}
    core.add(say, tool("deep")(deep), tool("login", **facts)(login))
    for secret in ("hunter2-hunter2", "9731"):
        for user in ("ada", ""):
            raw = body(user=user, password=secret)
            await core.call("login", raw, on_update=updates.append)
    shown = [msgspec.to_builtins(one) for one in (*core.events.since(0), *core.audited())]
    everything = str(shown) + str(updates) + capsys.readouterr().err
    assert "pw=[***]" in everything
    assert "hunter2" not in everything
    assert "9731" not in everything


async def test_a_secret_within_another_is_not_what_is_masked(core):
    """The longer one is masked whole."""
    core.add(tool("login", sensitive=frozenset({"password"}))(
        lambda_login(f"{core.secret}-and-more")
    ))  # fmt: skip
    result = await core.call("login", body(password=f"{core.secret}-and-more"))
    assert result.for_llm == "[***]"


def lambda_login(text):
    def give(params: Login, ctx: Context) -> Result:
        return results.text(text)

    return give


@pytest.mark.parametrize("wait", [False, True])
async def test_secrets_of_the_configuration_are_masked_everywhere(core, wait, capsys):
    """A known secret's whole value is masked in results too, whoever knew it."""
    core.add(
        say,
        fails(ValueError(f"refused {core.secret}"), wait=wait),
        tool("big")(lambda_result(results.text(f"{core.secret}\n" * 10_000))),
    )
    assert (await core.call("say", body(text=f"<{core.secret}>"))).for_llm == "<[***]>"
    assert (await core.call("fails")).for_llm == "ValueError: refused [***]"
    big = await core.call("big")
    (uri,) = big.media
    medium = core.media.get("local", uri)
    stored = core.media.read(medium, 0, medium.size).decode()
    record = core.audited()[0]
    assert record.arguments == {"text": "<[***]>"}
    for text in (stored, str(core.audited()), big.for_llm, capsys.readouterr().err):
        assert core.secret not in text


# Big outputs ------------------------------------------------------------------------------


async def test_a_long_output_is_cut_and_stored_whole(core):
    """Contract, section 7: 50 KB or 2,000 lines, with the `media://` path of the whole."""
    text = "".join(f"line {i}\n" for i in range(20_000))
    core.add(tool("sync")(lambda_result(results.text(text))), say_later)
    for name, raw in (("sync", b""), ("say_later", body(text=text))):
        result = await core.call(name, raw)
        assert len(result.for_llm.encode()) < MAX_BYTES + 500
        assert f"the whole output: {result.truncated.media}]" in result.for_llm
        medium = core.media.get("local", result.truncated.media)
        assert core.media.read(medium, 0, 1 << 20).decode() == text


async def test_a_shell_keeps_the_end_of_its_output(core):
    """Contract, section 7: exec and bash keep the end, others the beginning."""
    text = "first\n" + "x\n" * 5_000 + "last"
    core.add(tool("shell", keep_end=True)(lambda_result(results.text(text))))
    result = await core.call("shell")
    assert result.for_llm.endswith("last")
    assert result.truncated.kept == "end"


async def test_a_tool_whose_text_is_not_cut_answers_at_once(core):
    """`echo` of a megabyte: what the floors are measured with."""
    core.add(tool("whole", cut=False)(say.run))
    call = core.dispatcher.start(core.owner, None, "whole", body(text="x y" * 400_000))
    assert len(call.result.for_llm) == 1_200_000


async def test_a_picture_becomes_a_medium(core):
    """Contract, section 7: inline base64 of 1,024 characters and more becomes media."""
    picture = Result([Image("iVBORw0KGgo" + "A" * 2_000 + "=", "image/png")])
    core.add(tool("camera")(lambda_result(picture)))
    result = await core.call("camera")
    (link,) = result.content
    assert link.uri == result.media[0]
    assert link.mime_type == "image/png"


async def test_many_long_outputs_at_once_are_all_stored(core):
    """They are written off the loop, one at a time."""
    core.add(say_later)
    texts = [f"{i} " * 30_000 for i in range(8)]
    found = await asyncio.gather(*(core.call("say_later", body(text=t)) for t in texts))
    for text, result in zip(texts, found, strict=True):
        medium = core.media.get("local", result.truncated.media)
        assert core.media.read(medium, 0, 1 << 20).decode() == text


async def test_a_long_output_that_nobody_waits_for_any_more_is_dropped(core):
    """A plain function was done, its output is not stored yet, and the caller goes away."""
    core.add(tool("big")(lambda_result(results.text("x\n" * 50_000))))
    call = core.dispatcher.start(core.owner, None, "big", b"")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.wait()
    assert core.audited()[-1].outcome == "cancelled"


class SlowMedia(Media):
    """A disk that takes its time: each file waits until the test says so."""

    def __init__(self, core):
        super().__init__(core.data, core.clock)
        self.began, self.go, self.files = asyncio.Event(), threading.Event(), 0
        self._loop = asyncio.get_running_loop()

    def put(self, user, data, mime_type, name):
        self.files += 1
        self._loop.call_soon_threadsafe(self.began.set)
        assert self.go.wait(BOUND_S)
        return super().put(user, data, mime_type, name)


@pytest.fixture
async def slow(core):
    """A dispatcher on a slow disk, and a tool with many pictures."""
    media = SlowMedia(core)
    services = msgspec.structs.replace(core.control.services, media=media)
    pictures = [Image("iVBORw0KGgo" + "A" * 2_000 + "=", "image/png")] * 10

    async def later(params: Say, ctx: Context) -> Result:
        return Result(list(pictures))

    core.add(tool("camera", timeout_s=0.05)(later))
    core.add(tool("film", timeout_s=60.0)(later))
    dispatcher = Dispatcher(core.registry, services, core.spawn)
    yield dispatcher, media
    media.go.set()
    await dispatcher.drain(1.0)


async def test_what_is_stored_for_a_call_that_was_cancelled_is_given_up(core, slow):
    """Between two files: nobody waits for them any more."""
    dispatcher, media = slow
    call = dispatcher.start(core.owner, None, "film", b"")
    await media.began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.wait()
    media.go.set()
    core.add(tool("big")(lambda_result(results.text("x\n" * 50_000))))
    both = [dispatcher.start(core.owner, None, "big", b"").wait() for _ in range(WRITERS)]
    await asyncio.gather(*both)
    assert media.files == 1 + WRITERS


async def test_a_result_that_cannot_be_stored_in_the_calls_time_has_timed_out(
    core, slow, monkeypatch
):
    """Architecture, laws: the deadline is dispatch's; a disk does not prolong it."""
    monkeypatch.setattr(dispatch, "STORE_S", 0.0)
    dispatcher, _ = slow
    async with asyncio.timeout(BOUND_S):
        result = await dispatcher.start(core.owner, None, "camera", b"").wait()
    assert result.for_llm == "timed out after 0.05 s"


async def test_a_slow_disk_takes_no_thread_from_others(core, slow):
    """Storing has threads of its own."""
    dispatcher, media = slow
    calls = [dispatcher.start(core.owner, None, "film", b"") for _ in range(40)]
    await media.began.wait()
    async with asyncio.timeout(BOUND_S):
        assert await asyncio.to_thread(lambda: "free") == "free"
        # Memory is bounded too: what finds so many before it is cut and not stored.
        ended = [await call.wait() for call in calls[STORING_MAX:]]
    assert all(type(r.content[0]) is Image and r.media == [] for r in ended)
    assert not any(call.done for call in calls[:STORING_MAX])
    assert media.files <= WRITERS
    for call in calls:
        call.cancel()


async def test_without_secrets_nothing_is_masked(core):
    """The usual daemon."""
    dispatcher = Dispatcher(core.registry, core.control.services, core.spawn)
    updates = []

    async def says(params: Say, ctx: Context) -> Result:
        ctx.update([Text(params.text)])
        return results.text(params.text)

    core.add(tool("says")(says), tool("big")(lambda_result(results.text("x\n" * 50_000))))
    raw = body(text=core.secret)
    call = dispatcher.start(core.owner, None, "says", raw, on_update=updates.append)
    assert (await call.wait()).for_llm == core.secret
    assert updates == [[Text(core.secret)]]
    assert (await dispatcher.start(core.owner, None, "big", b"").wait()).truncated is not None


@pytest.mark.parametrize(
    ("channel", "chat_id", "is_let_in"),
    [
        ("", "", True),
        ("mail", "", True),
        ("mail", "anyone", True),
        ("telegram", "42", True),
        ("telegram", "43", False),
        ("telegram", "", False),
        ("ntfy", "42", False),
    ],
)
async def test_tool_of_some_channels_is_called_from_no_other(core, channel, chat_id, is_let_in):
    """Faults 3109 and 3114 of the best-known implementation: dangerous tools in group chats.

    Contract, section 4: the context's channel is a condition in policies.
    """
    dispatcher = Dispatcher(
        core.registry, core.control.services, core.spawn,
        channels={"greet": ("mail", "telegram:42"), "never": ()},
    )  # fmt: skip
    core.add(tool("greet")(lambda_result(results.text("hello"))))
    core.add(tool("never")(lambda_result(results.text("hello"))))
    core.add(tool("other")(lambda_result(results.text("hello"))))
    caller = msgspec.structs.replace(core.owner, channel=channel, chat_id=chat_id)
    if is_let_in:
        await dispatcher.start(caller, None, "greet", b"").wait()
    else:
        with pytest.raises(DeniedError, match=f"not be called from channel '{channel}'"):
            dispatcher.start(caller, None, "greet", b"")
        with pytest.raises(DeniedError, match=r"tools\.greet\.channels"):
            dispatcher.check(caller, "greet", b"")
        assert core.audited()[-1].outcome == "denied"
    if channel:
        with pytest.raises(DeniedError):
            dispatcher.start(caller, None, "never", b"")
    await dispatcher.start(caller, None, "other", b"").wait()


# Updates, events, audit -------------------------------------------------------------------


async def test_updates_come_while_it_runs_and_none_after_the_end(core, gate):
    """Start, 0..n updates, then exactly one end. Nothing after the end."""
    updates = []
    call = core.dispatcher.start(core.owner, None, "gate", b"", on_update=updates.append)
    await gate.started.wait()
    gate.context.update([Text("half")])
    gate.go.set()
    await call.wait()
    gate.context.update([Text("after the end")])
    assert updates == [[Text("half")]]


async def test_updates_that_nobody_wants_are_dropped(core, gate):
    """A caller without a progress token."""
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await gate.started.wait()
    gate.context.update([Text("half")])
    gate.go.set()
    await call.wait()


async def test_a_call_is_two_events_of_its_user(core):
    """Start and end, without a word of its arguments."""
    core.add(say)
    await core.call("say", body(text="private"), core.agent)
    start, end = core.events.since(0)
    assert (start.kind, end.kind) == ("call.start", "call.end")
    assert {start.user, end.user} == {core.agent.user}
    assert start.data == {"call_id": end.data["call_id"], "tool": "say", "door": "unix"}
    assert (end.data["outcome"], end.data["duration_ms"]) == ("ok", 0)


async def test_the_trail_says_who_what_how_long_and_how_it_ended(core):
    """Issue 2, part 7."""
    core.add(say)
    caller = Caller("ada@example.org", "agent", "s1", "http", "token kitchen")
    await core.call("say", body(text="hi"), caller)
    (record,) = core.audited()
    assert msgspec.to_builtins(record) == {
        "time": "2023-11-14T22:13:20.000Z",
        "call_id": record.call_id,
        "user": "ada@example.org",
        "role": "agent",
        "door": "http",
        "tool": "say",
        "outcome": "ok",
        "duration_ms": 0,
        "peer": "token kitchen",
        "session": "s1",
        "source": "built-in",
        "arguments": {"text": "hi"},
    }


async def test_long_arguments_are_cut_in_the_trail(core):
    """Bounded on disk, at 1 KB a call."""
    core.add(say)
    await core.call("say", body(text="é" * 5_000))
    kept = core.audited()[-1].arguments
    assert kept.startswith('{"text":"éé')
    assert kept.endswith(" …")
    assert len(kept.encode()) < 1_100


async def test_nothing_of_a_call_waits_for_the_trail_to_be_written(core):
    """A megabyte each of arguments and result, a hundred times a second, until the batch."""
    core.add(tool("whole", cut=False)(say.run))
    call = core.dispatcher.start(core.owner, None, "whole", body(text="x" * 100_000))
    closures = [c.cell_contents for make in core.trail._waiting for c in make.__closure__]
    assert call not in closures
    assert not any(isinstance(c, bytes | str) and len(c) > 1_100 for c in closures)


async def test_a_result_is_handed_on_before_the_books_are_kept(core):
    """Who waits for an answer does not wait for the trail and the events."""
    core.add(say, say_later)
    seen = []
    core.dispatcher.services.events.subscribe(lambda event: seen.append(event.kind))

    def done(call):
        seen.append(call.result.for_llm)
        assert core.audited() == []

    core.dispatcher.start(core.owner, None, "say", body(text="hi"), on_done=done)
    assert seen == ["hi", "call.start", "call.end"]
    assert [record.outcome for record in core.audited()] == ["ok"]


async def test_what_fails_in_who_is_handed_the_result_is_noted_all_the_same(core):
    core.add(say)

    def done(_call):
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        core.dispatcher.start(core.owner, None, "say", b"", on_done=done)
    assert [record.outcome for record in core.audited()] == ["ok"]


# Stopping ---------------------------------------------------------------------------------


async def test_a_stopping_daemon_takes_no_new_calls_and_lets_running_ones_end(core, gate):
    """Law: refuse new calls, drain to a limit."""
    core.add(other)
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await gate.started.wait()
    draining = asyncio.create_task(core.dispatcher.drain(60.0))
    await asyncio.sleep(0)
    assert "is stopping" in await refused(core, StoppingError, "gate")
    assert core.audited()[-1].outcome == "stopping"
    gate.go.set()
    await draining
    assert call.result.for_llm == "done"


async def test_what_does_not_end_in_time_is_cancelled(core, gate):
    """Its sandbox dies with it."""
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await gate.started.wait()
    await core.dispatcher.drain(0.001)
    assert call.cancelled
    assert gate.cancelled.is_set()


async def test_who_hurries_a_drain_ends_what_runs(core, gate):
    """A second Ctrl-C: running calls get no more time, and are ended as ever."""
    core.dispatcher.hurry()
    call = core.dispatcher.start(core.owner, None, "gate", b"")
    await gate.started.wait()
    async with asyncio.timeout(BOUND_S):
        draining = asyncio.create_task(core.dispatcher.drain(3600.0))
        await asyncio.sleep(0)
        assert not call.done
        core.dispatcher.hurry()
        core.dispatcher.hurry()
        await draining
    assert call.cancelled
    assert gate.cancelled.is_set()


async def test_a_running_tool_may_still_call_others_while_it_is_drained(core):
    """Else it could not end well."""
    go = asyncio.Event()

    @tool("last")
    async def last(params: Say, ctx: Context) -> Result:
        """Calls another tool at its end."""
        await go.wait()
        return await ctx.call("say", body(text="switched off"))

    core.add(last, say)
    call = core.dispatcher.start(core.owner, None, "last", b"")
    draining = asyncio.create_task(core.dispatcher.drain(60.0))
    await asyncio.sleep(0)
    go.set()
    await draining
    assert call.result.for_llm == "switched off"


async def test_draining_an_idle_daemon_takes_no_time(core):
    """Nothing to wait for."""
    await core.dispatcher.drain(60.0)


async def test_a_late_result_is_made_where_long_ones_are_stored(core):
    """One that was never begun is dropped with its call; secrets are masked as everywhere."""
    held, began, made = threading.Event(), threading.Semaphore(0), []

    def make():
        made.append(threading.current_thread().name)
        began.release()
        assert held.wait(BOUND_S)
        return results.text(f"{core.secret} {'x' * 60_000}")

    async def later(params: Say, ctx: Context) -> Result | Late:
        assert ctx.share.take(1000) == 1000
        return Late(make)

    core.add(tool("late")(later))
    dispatcher = Dispatcher(core.registry, core.control.services, core.spawn, (core.secret,))
    count = WRITERS + STORING_MAX + 3
    calls = [dispatcher.start(core.owner, None, "late", b"") for _ in range(count)]
    for _ in range(WRITERS):
        assert await asyncio.to_thread(began.acquire, timeout=BOUND_S)
    gone = calls.pop()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone.wait()
    assert gone.share.size == 0
    assert all(call.share.size == 1000 for call in calls)
    held.set()
    async with asyncio.timeout(BOUND_S):
        ended = [await call.wait() for call in calls]
    assert len(made) == count - 1
    assert {name.rpartition("_")[0] for name in made} == {"edged-results"}
    assert all(r.for_llm.startswith(f"{MASK} x") and len(r.media) == 1 for r in ended)
    assert all(call.share.size == 0 for call in calls)
