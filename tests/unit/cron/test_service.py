"""Who may add, see and manage which jobs, and what a job is."""

import asyncio
import json

import msgspec
import pytest

from edged.cron.service import Limits
from edged.cron.spec import Spec
from edged.errors import (
    BusyError,
    DeniedError,
    EdgedError,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
)
from tests.unit.cron.conftest import NOW
from tests.unit.cron.world import AGENT, DAY, HOUR, OWNER

BOB = msgspec.structs.replace(AGENT, user="bob@example.org", peer="uid 1001")
LOCAL_AGENT = msgspec.structs.replace(OWNER, role="agent", peer="uid 1002")


async def test_answer_has_the_next_three_times(world):
    """Issue 4, part 4: validated when added, with the next run times."""
    job = await world.add(schedule="0 9 * * *", tz="Europe/Berlin")
    days = ("2027-01-02", "2027-01-03", "2027-01-04")
    assert job.next_runs == tuple(f"{day}T09:00:00.000+01:00" for day in days)
    assert (job.next_run, job.tz) == (job.next_runs[0], "Europe/Berlin")


async def test_zero_and_empty_are_absent(world):
    """Fault 1043: a model fills in `at_seconds: 0`, and the job becomes a one-time one."""
    job = await world.add(
        schedule="0 9 * * *", cron_expr="", every_seconds=0, at_seconds=0, command="echo", tool="",
        message="", tz="", name="",
    )  # fmt: skip
    assert (job.schedule, job.command, job.tool, job.message) == ("0 9 * * *", "echo", "", "")
    assert len(job.next_runs) == 3


@pytest.mark.parametrize(
    ("said", "schedule"),
    [
        ({"cron_expr": "0 9 * * *"}, "0 9 * * *"),
        ({"every_seconds": 5400}, "every 90m"),
        ({"at_seconds": 90}, "in 90s"),
    ],
)
async def test_other_ways_to_say_when(world, said, schedule):
    """Contract, section 8."""
    assert (await world.add(**said)).schedule == schedule


async def test_zone_is_honoured_and_the_machines_by_default(world):
    """Faults 1044 and 1623: UTC whatever was said."""
    world.local = "America/New_York"
    await world.stop()
    await world.start()
    assert (await world.add(schedule="0 9 * * *")).next_run == "2027-01-01T09:00:00.000-05:00"
    fixed = await world.add(schedule="0 9 * * *", tz="Asia/Tokyo")
    assert fixed.next_run == "2027-01-02T09:00:00.000+09:00"
    with pytest.raises(InvalidArgumentsError, match="tz: 'Mars/Olympus' is no time zone"):
        await world.add(schedule="0 9 * * *", tz="Mars/Olympus")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"schedule": "every 59s"}, "the shortest is 60 s (tools.cron.min_interval)"),
        ({"every_seconds": 1}, "the shortest is 60 s"),
        ({"every_seconds": -5}, "every_seconds: must be from 1 s"),
        ({"cron_expr": "0 25 * * *"}, "cron_expr: '0 25 * * *': hour '25'"),
        ({"schedule": "0 0 30 2 *"}, "never comes"),
        ({}, "schedule: is required"),
        ({"schedule": "every 1h", "cron_expr": "0 9 * * *"}, "give one of schedule and cron_expr"),
        (
            {"schedule": "every 1h", "command": "ls", "tool": "work"},
            "a command, a tool or a task, one",
        ),
        ({"schedule": "every 1h", "command": " "}, "is required, or a tool, a task"),
        ({"schedule": "every 1h", "command": "x", "arguments": {"a": 1}}, "name it"),
        ({"schedule": "every 1h", "command": "x" * 20_000}, "over 16 KiB"),
        ({"schedule": "every 1h", "name": "x" * 101}, "name: is over 100 characters"),
    ],
)
async def test_what_is_no_job_is_refused_when_it_is_added(world, said, reason):
    """Fault 1655 and others: what cannot run is stored, and nobody is told."""
    with pytest.raises(InvalidArgumentsError) as caught:
        await world.add(**said)
    assert reason in str(caught.value)
    assert (await world.cron.page(OWNER)).total == 0


async def test_burst_of_an_expression_is_held_to_the_floor(world):
    """Fault 1655."""
    world.limits = Limits(600.0, HOUR, 100, ("*",))
    await world.stop()
    await world.start()
    with pytest.raises(InvalidArgumentsError, match="every 60 s at times; the shortest is 600 s"):
        await world.add(schedule="0-2 9 * * *")
    await world.add(schedule="0,30 9 * * *")


async def test_jobs_of_one_user_are_bounded(world):
    world.limits = Limits(60.0, HOUR, 2, ("*",))
    await world.stop()
    await world.start()
    await world.add(AGENT, schedule="in 1m")
    job = await world.add(AGENT, schedule="every 1h")
    with pytest.raises(BusyError, match="has 2 jobs"):
        await world.add(AGENT, schedule="every 1h")
    await world.add(BOB, schedule="every 1h")
    await world.pass_time(60)
    # One that is over makes room.
    await world.get(job.id, AGENT)
    await world.add(AGENT, schedule="every 1h")
    await world.cron.remove(AGENT, job.id)
    await world.add(AGENT, schedule="every 1h")


# Rights -----------------------------------------------------------------------------------


async def test_agent_sees_and_manages_its_users_jobs_alone(world):
    mine = await world.add(AGENT, schedule="every 1h")
    other = await world.add(BOB, schedule="every 1h")
    assert [job.id for job in (await world.cron.page(AGENT)).jobs] == [mine.id]
    assert {job.id for job in (await world.cron.page(OWNER)).jobs} == {mine.id, other.id}
    for act in (world.cron.get, world.cron.remove, world.cron.run):
        with pytest.raises(NotFoundError, match="no job"):
            await act(AGENT, other.id)
    with pytest.raises(NotFoundError):
        await world.cron.update(AGENT, other.id, Spec(command="ls"))
    await world.cron.remove(OWNER, other.id)


async def test_agent_changes_no_job_that_runs_with_an_owners_rights(world):
    """On a board that maps nobody, root and its agents are the same user."""
    job = await world.add(schedule="every 1h")
    assert (await world.get(job.id, LOCAL_AGENT)).role == "owner"
    for act in (
        world.cron.update(LOCAL_AGENT, job.id, Spec(command="id")),
        world.cron.run(LOCAL_AGENT, job.id),
        world.cron.enable(LOCAL_AGENT, job.id, False),
        world.cron.remove(LOCAL_AGENT, job.id),
    ):
        with pytest.raises(DeniedError, match="only an owner may"):
            await act


async def test_job_of_an_agent_keeps_its_rights_when_an_owner_changes_it(world):
    job = await world.add(AGENT, schedule="in 1m")
    await world.cron.update(OWNER, job.id, Spec(name="kept"))
    await world.pass_time(60)
    ((_, caller, _, _),) = world.errands.calls
    assert (caller.user, caller.role, caller.door) == (AGENT.user, "agent", "internal")


async def test_tool_adds_jobs_of_what_it_may_call_itself(world):
    """Contract, section 1: the right to the inner tool too."""
    inside = msgspec.structs.replace(AGENT, allowed=frozenset({"cron", "work"}), depth=1)
    job = await world.add(inside, schedule="in 1m")
    await world.pass_time(60)
    ((_, caller, _, _),) = world.errands.calls
    assert caller.allowed == {"cron", "work"}
    other = await world.add(AGENT, schedule="every 1h", command="ls")
    with pytest.raises(DeniedError, match="calls exec"):
        await world.cron.run(inside, other.id)
    assert (await world.get(job.id)).state == "done"


async def test_job_is_changed_and_run_from_the_chat_that_it_was_added_from(world):
    """Else a chat that may not run commands would have a job of another chat run them."""
    ops = msgspec.structs.replace(AGENT, channel="ops", chat_id="1")
    chat = msgspec.structs.replace(AGENT, channel="telegram", chat_id="7")
    job = (await world.cron.add(ops, Spec(schedule="every 1h", command="ls"))).job
    for act in (
        world.cron.update(chat, job.id, Spec(command="id")),
        world.cron.run(chat, job.id),
        world.cron.enable(chat, job.id, False),
        world.cron.remove(chat, job.id),
    ):
        with pytest.raises(DeniedError, match="was added from ops 1"):
            await act
    for caller in (ops, AGENT, OWNER):
        await world.cron.update(caller, job.id, Spec(command="id"))


async def test_command_from_a_channel_that_may_not_is_refused_with_the_setting(world):
    """Fault 1757: refused with an unclear word about channels."""
    world.limits = Limits(60.0, HOUR, 9, ("matrix",))
    await world.stop()
    await world.start()
    there = msgspec.structs.replace(AGENT, channel="telegram", chat_id="7")
    with pytest.raises(DeniedError, match=r"from matrix, not from 'telegram'.*command_channels"):
        await world.add(there, schedule="every 1h", command="ls")
    await world.add(there, schedule="every 1h", message="drink")
    await world.add(AGENT, schedule="every 1h", command="ls")
    await world.add(
        msgspec.structs.replace(there, channel="matrix"), schedule="every 1h", command="ls"
    )


async def test_whole_life_of_a_job_is_in_reach(world):
    """Faults 63 and 37: jobs cannot be managed from a chat."""
    act = world.cron.act
    job = (await act(AGENT, "add", spec=Spec(schedule="every 1h", command="ls"))).job
    assert (await act(AGENT, "list")).total == 1
    await act(AGENT, "update", job.id, Spec(name="list files", command="ls -l"))
    found = await act(AGENT, "get", "list files")
    assert (found.id, found.command) == (job.id, "ls -l")
    assert (await act(AGENT, "disable", job.id)).job.state == "disabled"
    assert (await act(AGENT, "enable", job.id)).job.state == "waiting"
    assert (await act(AGENT, "run", job.id)).run.status == "ok"
    assert (await act(AGENT, "remove", job.id)).status == "removed"
    assert (await act(AGENT, "list")).total == 0
    kinds = [kind for kind, user, _ in world.events if user == AGENT.user]
    assert kinds == [
        "job.added", "job.updated", "job.updated", "job.updated", "job.start", "job.end",
        "job.removed",
    ]  # fmt: skip


async def test_name_that_two_jobs_have_is_answered_with_their_ids(world):
    ids = sorted([(await world.add(schedule="every 1h", name="twin")).id for _ in range(2)])
    with pytest.raises(NotFoundError) as caught:
        await world.cron.get(OWNER, "twin")
    assert "several jobs are named 'twin': say which id: " + ", ".join(ids) in str(caught.value)


async def test_listing_has_the_stored_next_run_alone(world):
    """The next three of such an expression take milliseconds for each row."""
    job = await world.add(schedule="0 0 L 2 sun#5")
    assert len(job.next_runs) == 3
    (row,) = (await world.cron.page(OWNER)).jobs
    assert row.next_runs == (job.next_run,)
    assert (await world.get(job.id)).next_runs == job.next_runs


async def test_one_time_job_that_is_over_is_not_switched_on(world):
    job = await world.add(schedule="in 1m")
    await world.pass_time(60)
    await world.get(job.id)
    # Also where nobody had switched it off: it did not run again for that.
    with pytest.raises(InvalidArgumentsError, match="or run it now"):
        await world.cron.enable(OWNER, job.id, True)
    await world.cron.enable(OWNER, job.id, False)
    with pytest.raises(InvalidArgumentsError, match="was due once, and is done: give it another"):
        await world.cron.enable(OWNER, job.id, True)
    answer = await world.cron.update(OWNER, job.id, Spec(schedule="in 2m"))
    assert answer.job.next_run is None
    answer = await world.cron.enable(OWNER, job.id, True)
    assert answer.job.state == "waiting"


# What a run does --------------------------------------------------------------------------


async def test_message_about_a_command_is_sent_once_with_its_output(world):
    """Fault 1868: the final reply is dropped. Specification: `command` and `message` together."""
    world.errands.outcomes["exec"] = (0.0, False, "3 files")
    there = msgspec.structs.replace(AGENT, channel="telegram", chat_id="7")
    await world.add(there, schedule="in 1m", command="ls | wc -l", message="Daily reminder")
    await world.pass_time(60)
    calls = [(name, json.loads(raw)) for _, _, name, raw in world.errands.calls]
    assert calls == [
        ("exec", {"command": "ls | wc -l"}),
        ("message", {"text": "Daily reminder\n\n3 files"}),
    ]
    assert {(c.channel, c.chat_id) for _, c, _, _ in world.errands.calls} == {("telegram", "7")}


async def test_report_of_a_subagent_is_sent_once_to_where_it_was_asked_for(world):
    """Fault 1868 again: the final reply of an agent's turn, with and without words of ours."""
    world.errands.outcomes["spawn"] = (0.0, False, "All is well.")
    there = msgspec.structs.replace(AGENT, channel="telegram", chat_id="7")
    job = await world.add(there, schedule="in 1m", task="Look around", agent="watcher")
    assert (job.name, job.task, job.agent) == ("Look around", "Look around", "watcher")
    await world.add(there, schedule="in 2m", task="Look", message="Morning", name="look")
    await world.add(schedule="in 3m", task="Look")
    await world.pass_time(180)
    assert [(name, json.loads(raw)) for _, _, name, raw in world.errands.calls] == [
        ("spawn", {"task": "Look around", "label": "Look around", "agent": "watcher"}),
        ("message", {"text": "All is well."}),
        ("spawn", {"task": "Look", "label": "look"}),
        ("message", {"text": "Morning\n\nAll is well."}),
        ("spawn", {"task": "Look", "label": "Look"}),
    ]
    assert (await world.get(job.id)).last.output == "All is well."


async def test_subagent_that_fails_is_told(world):
    world.errands.outcomes["spawn"] = (0.0, True, "no report within 30 turns")
    job = await world.add(schedule="in 1m", task="Look", channel="telegram")
    await world.pass_time(60)
    assert json.loads(world.errands.calls[1][3])["text"] == "failed: no report within 30 turns"
    assert (await world.get(job.id)).last.status == "error"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"task": "x", "command": "ls"}, "task: a job has a command, a tool or a task"),
        ({"task": "x", "tool": "work"}, "task: a job has a command, a tool or a task"),
        ({"agent": "watcher", "message": "x"}, "task: is required: say what the agent"),
        ({"task": " "}, "command: is required"),
    ],
)
async def test_job_is_one_thing(world, said, reason):
    with pytest.raises(InvalidArgumentsError, match=reason):
        await world.add(schedule="in 1m", **said)


async def test_job_of_a_tool_that_may_not_spawn_is_refused(world):
    """Contract, section 1: the right to the inner tool, checked when it is set up."""
    job = await world.add(schedule="in 1h", task="Look")
    limited = msgspec.structs.replace(OWNER, allowed=frozenset({"cron"}))
    with pytest.raises(DeniedError, match="a job that calls spawn"):
        await world.cron.run(limited, job.id)


@pytest.mark.parametrize("said", [{}, {"command": "ls"}])
async def test_message_goes_to_the_channel_and_chat_that_were_named(world, said):
    """Picoclaw's injected names, which the job keeps; commands still run as of the context."""
    there = msgspec.structs.replace(AGENT, channel="matrix", chat_id="7")
    job = await world.add(
        there, schedule="every 1m", message="tea", channel="telegram", chat_id="42", **said
    )
    assert (job.channel, job.chat_id) == ("telegram", "42")
    await world.pass_time(60)
    _, caller, name, raw = world.errands.calls[-1]
    sent = json.loads(raw)
    assert (name, sent["channel"], sent["chat_id"]) == ("message", "telegram", "42")
    assert (caller.channel, caller.chat_id) == ("matrix", "7")
    answer = await world.cron.update(AGENT, job.id, Spec(channel="", chat_id=""))
    assert (answer.job.channel, answer.job.chat_id) == ("matrix", "7")


async def test_chat_of_the_context_is_none_of_another_channel(world):
    there = msgspec.structs.replace(AGENT, channel="matrix", chat_id="7")
    job = await world.add(there, schedule="every 1h", message="tea", channel="telegram")
    assert (job.channel, job.chat_id) == ("telegram", "")


async def test_message_to_an_unknown_channel_is_refused_when_it_is_added(world):
    with pytest.raises(EdgedError, match="no channel 'pigeon'"):
        await world.add(schedule="every 1h", message="tea", channel="pigeon")
    assert (await world.cron.page(OWNER)).total == 0
    job = await world.add(schedule="every 1h", message="tea")
    with pytest.raises(EdgedError, match="no channel 'pigeon'"):
        await world.cron.update(OWNER, job.id, Spec(channel="pigeon"))


async def test_channel_to_send_to_opens_no_commands(world):
    """Commands are held to the channel that their job was added from."""
    world.limits = Limits(60.0, HOUR, 9, ("telegram",))
    await world.stop()
    await world.start()
    there = msgspec.structs.replace(AGENT, channel="matrix")
    with pytest.raises(DeniedError, match="not from 'matrix'"):
        await world.add(there, schedule="every 1h", command="ls", message="x", channel="telegram")


async def test_message_says_that_the_command_failed(world):
    world.errands.outcomes["exec"] = (0.0, True, "no space left")
    job = await world.add(schedule="in 1m", command="backup", message="Backup")
    await world.pass_time(60)
    assert json.loads(world.errands.calls[1][3]) == {"text": "Backup\n\nfailed: no space left"}
    assert (await world.get(job.id)).last.status == "error"


async def test_message_that_cannot_be_sent_is_no_success(world):
    world.errands.outcomes["message"] = (0.0, True, "no route")
    job = await world.add(schedule="in 1m", command="ls", message="x")
    await world.pass_time(60)
    last = (await world.get(job.id)).last
    assert (last.status, last.output) == ("error", "done\nthe message was not sent: no route")


async def test_job_whose_tool_went_away_fails_and_says_so(world):
    """Contract, section 1: rights are checked again when it runs."""
    from edged.errors import ToolUnavailableError

    async def refuse(*_):
        raise ToolUnavailableError("work", "disabled", "", "the owner can switch it on")

    job = await world.add(schedule="in 1m")
    world.errands.call = refuse
    await world.pass_time(60)
    last = (await world.get(job.id)).last
    assert last.status == "error"
    assert "the owner can switch it on" in last.output


async def test_output_is_kept_whole_at_its_end_and_bounded(world):
    """Fault 1946: output of a run that nobody watched is kept."""
    world.errands.outcomes["work"] = (0.0, False, "x" * 10_000 + "\nexit status 0")
    job = await world.add(schedule="every 1m")
    await world.pass_time(30 * 60)
    found = await world.get(job.id)
    assert len(found.runs) == 20
    assert all(len(run.output) == 4_096 for run in found.runs)
    assert found.last.output.endswith("\nexit status 0")
    assert [run.id for run in found.runs] == sorted((r.id for r in found.runs), reverse=True)


async def test_caller_who_goes_away_leaves_a_job_whole(world):
    """Fault 1946, and a request that is cancelled: on the disk and in the heap, or in neither."""
    world.turns = 2
    for turns in range(12):
        task = asyncio.ensure_future(
            world.cron.add(OWNER, Spec(at_seconds=60, tool="work", name=f"j{turns}"))
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await world.idle()
    await asyncio.sleep(0)
    total = (await world.cron.page(OWNER)).total
    await world.pass_time(120)
    assert len(world.errands.calls) == total > 0


# The disk ---------------------------------------------------------------------------------


async def test_job_that_cannot_be_stored_is_not_acknowledged(world):
    def full(name):
        if name == "add":
            raise StoreError("jobs: cannot write: disk full")
        return ""

    world.lose_power = full
    with pytest.raises(StoreError, match="disk full"):
        await world.add(schedule="in 1m")
    world.lose_power = lambda name: ""
    assert (await world.cron.page(OWNER)).total == 0
    await world.pass_time(DAY)
    assert world.errands.calls == []


async def test_run_that_cannot_be_noted_waits_for_the_disk(world):
    """At most once: what is not on the disk as running is not begun."""
    job = await world.add(schedule="in 1m")

    def full(name):
        if name == "settle":
            raise StoreError("jobs: cannot write: disk full")
        return ""

    world.lose_power = full
    await world.pass_time(600)
    assert world.errands.calls == []
    assert world.cron.health()["problem"].endswith("disk full")
    world.lose_power = lambda name: ""
    world.cron.scheduler.stir()
    await world.idle()
    assert world.runs(job.id) == [NOW + 60]
    assert "problem" not in world.cron.health()


async def test_broken_database_is_set_aside_and_told(world):
    await world.add(schedule="every 1h")
    await world.stop()
    with open(world.path, "wb") as file:
        file.write(b"no database at all" * 100)
    await world.start()
    assert (await world.cron.page(OWNER)).total == 0
    assert ".broken" in world.cron.health()["problem"]
    with open(f"{world.path}.broken", "rb") as file:
        assert file.read(11) == b"no database"


async def test_database_of_a_newer_edged_is_left_alone(world):
    import sqlite3

    await world.add(schedule="every 1h")
    await world.stop()
    with sqlite3.connect(world.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="of a newer edged"):
        await world.start()
    world.cron = None


async def test_zone_that_is_gone_stops_no_other_job(world):
    """A time zone database without it, or none at all; node-red#4434: errors stay in the job."""
    import sqlite3

    lost = await world.add(schedule="0 13 * * *", tz="Europe/Berlin")
    await world.add(schedule="0 14 * * *")
    await world.stop()
    with sqlite3.connect(world.path) as db:
        db.execute("UPDATE jobs SET body = REPLACE(CAST(body AS TEXT), 'Berlin', 'Nowhere')")
    db.close()
    await world.start()
    assert (await world.cron.page(OWNER)).total == 2
    await world.pass_time(2 * DAY)
    assert len(world.errands.calls) == 4
    assert (await world.get(lost.id)).last.status == "ok"


async def test_job_that_cannot_be_read_is_switched_off_and_stops_no_other(world, capsys):
    """As above."""
    import sqlite3

    await world.add(schedule="in 1m", name="broken")
    await world.add(schedule="in 1m", name="whole")
    await world.stop()
    with sqlite3.connect(world.path) as db:
        db.execute("UPDATE jobs SET body = '{}' WHERE name = 'broken'")
    db.close()
    await world.start()
    assert [job.name for job in (await world.cron.page(OWNER)).jobs] == ["whole"]
    await world.pass_time(DAY)
    assert len(world.errands.calls) == 1
    assert "cannot be read and is switched off" in capsys.readouterr().err


async def test_change_while_a_job_runs_repeats_no_run(world):
    """Between the look at a job and the word to change it, it may have been due."""
    job = await world.add(schedule="every 1m", command="ls")
    check = world.errands.check

    async def meanwhile(*args):
        world.errands.check = check
        await world.pass_time(60)
        return ()

    world.errands.check = meanwhile
    changing = asyncio.ensure_future(world.cron.update(OWNER, job.id, Spec(name="renamed")))
    await changing
    await world.pass_time(60)
    assert world.runs(job.id) == [NOW + 60, NOW + 120]
