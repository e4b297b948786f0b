"""Jobs through every door, and on a disk that is pulled out or full."""

import asyncio
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp
import msgspec
import pytest

from edged import results
from edged.errors import StoreError
from edged.identity import Caller
from edged.testing import running
from edged.tool import tool
from tests.integration.test_power import BOUND_S, place  # noqa: F401  a fixture

ROOT = Path(__file__).parents[2]
SPECIFICATION = (ROOT / "tests" / "data" / "tools-api.md").read_text()
OWNER = Caller("local", "owner", "", "http")
AGENT = Caller("ada@example.org", "agent", "", "http")


class Said(msgspec.Struct, frozen=True):
    text: str


class Nothing(msgspec.Struct, frozen=True):
    pass


@tool("message")
def message(params: Said, _ctx) -> results.Result:
    """Stands in for the outbox."""
    return results.text(f"sent {params.text}")


@pytest.fixture
def folder():
    """One that the tools' account may enter."""
    with tempfile.TemporaryDirectory(prefix="edged-jobs-", dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        yield made


@pytest.fixture
async def board(folder):
    who = {"": OWNER, "Bearer any": OWNER, "Bearer ada": AGENT}
    async with running(
        data=folder,
        tools=(message,),
        authenticate=lambda headers: who.get(headers.get("Authorization", "")),
    ) as it:
        yield it


async def call(board, caller=OWNER, **said):
    """Call `cron`."""
    async with asyncio.timeout(BOUND_S):
        raw = msgspec.json.encode(said)
        return await board.daemon.dispatcher.start(caller, None, "cron", raw).wait()


async def http(board, method, path, body=None, *, status=200, token=""):
    headers = {"Authorization": token} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, f"{board.url}{path}", json=body) as response,
    ):
        assert response.status == status, await response.text()
        return await response.json()


async def verb(board, *words, code=0, door=()):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "edged", *words, *(door or ("--socket", board.socket)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "EDGED_TOKEN": "any", "TZ": "UTC"},
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == code, (out, err)
    return out.decode() + err.decode()


def example():
    """The arguments of the specification's section, which has comments."""
    section = SPECIFICATION.split("### Automation Tools")[1].split("\n### ")[0]
    text = re.search(r"```json\n(.*?)```", section, re.DOTALL)[1]
    return json.loads(re.sub(r"  // .*", "", text))


async def test_example_of_the_specification_is_accepted(board):
    """Specification, Automation Tools."""
    said = example()
    assert set(said) == {"action", "schedule", "command", "message"}
    result = await call(board, **said)
    assert not result.is_error, result.for_llm
    job = result.structured["job"]
    assert (job["schedule"], job["command"]) == (said["schedule"], said["command"])
    assert job["message"] == said["message"]
    assert len(job["next_runs"]) == 3
    listed = await call(board, action="list")
    assert job["id"] in listed.for_llm
    removed = await call(board, action="remove", id=job["id"])
    assert removed.structured["status"] == "removed"
    assert (await call(board, action="list")).for_llm == "No jobs."


@pytest.mark.parametrize(
    ("said", "schedule"),
    [
        ({"schedule": "in 5m", "text": "tea"}, "in 5m"),
        ({"cron": "0 9 * * *", "message": "tea"}, "0 9 * * *"),
        ({"cron_expr": "0 9 * * *", "content": "tea", "timezone": "UTC"}, "0 9 * * *"),
        ({"every_seconds": "3600", "message": "tea", "at_seconds": 0}, "every 1h"),
        ({"at_seconds": 60, "message": "tea", "channel": "x", "chat_id": "1"}, "in 1m"),
    ],
)
async def test_aliases_are_accepted(board, said, schedule):
    """Contract, section 8."""
    result = await call(board, **said)
    assert not result.is_error, result.for_llm
    assert result.structured["job"]["schedule"] == schedule
    assert result.structured["job"]["message"] == "tea"
    found = await call(board, action="get", job_id=result.structured["job"]["id"])
    assert found.structured["schedule"] == schedule


async def test_job_of_a_tool_that_is_not_there_is_refused(board):
    """What cannot run is refused when it is added."""
    board.daemon.registry.unregister("message")
    result = await call(board, schedule="in 5m", message="tea")
    assert result.is_error
    assert "message: needs a tool that is not here: no tool named 'message'" in result.for_llm
    result = await call(board, schedule="in 5m", tool="sensor", arguments={"sensr": "x"})
    assert "arguments.sensr: is not an input of this tool" in result.for_llm


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"command": "echo hi"}, "schedule: is required"),
        # Of an unset variable of a script.
        ({"command": "echo hi", "schedule": ""}, "schedule: is required"),
        ({"message": "tea", "every_seconds": 0}, "schedule: is required"),
        ({"id": "x", "command": "ls"}, "command: belongs to action update"),
    ],
)
async def test_what_is_said_of_a_job_is_not_lost_where_no_action_is(board, said, words):
    result = await call(board, **said)
    assert result.is_error
    assert words in result.for_llm
    assert (await call(board)).for_llm == "No jobs."


async def test_channel_of_a_message_is_kept_and_shown(folder):
    """Contract, section 8: names that hosts inject; refused as the tool `message` would."""
    said = {"schedule": "every 1h", "message": "tea", "name": "tea"}
    config = "messages: {default: one, channels: {one: {kind: events}, two: {kind: events}}}"
    async with running(data=folder, config=config) as board:
        refused = await call(board, **said, channel="pigeon", chat_id="1")
        assert refused.is_error
        assert "no channel 'pigeon' is configured; there are: one, two" in refused.for_llm
        made = await call(board, **said, channel="two", chat_id="kitchen")
        assert not made.is_error, made.for_llm
        assert "to: two (kitchen)" in (await call(board, action="get", id="tea")).for_llm
        told = await verb(board, "jobs", "show", "tea")
        assert re.search(r"^to +two \(kitchen\)$", told, re.MULTILINE)
        found = json.loads(await verb(board, "jobs", "show", "tea", "--json"))
        assert (found["channel"], found["chat_id"]) == ("two", "kitchen")
        ran = await call(board, action="run", id="tea")
        assert ran.structured["run"]["output"].startswith("message accepted for two (kitchen)")


async def test_run_of_a_job_goes_the_one_call_path(board):
    """Contract, section 1: audited as its user's call, and told in the events."""
    result = await call(board, AGENT, schedule="every 1h", command="false", name="fails")
    job = result.structured["job"]["id"]
    ran = await call(board, AGENT, action="run", id=job)
    assert ran.structured["run"]["status"] == "error"
    assert ran.structured["run"]["output"] == "[Command exited with code 1]"
    services = board.daemon.services
    record = next(r for r in services.trail.recent(10, None) if r.tool == "exec")
    assert (record.user, record.role, record.door) == (AGENT.user, "agent", "internal")
    assert record.call_id == ran.structured["run"]["call_id"]
    told = [e for e in services.events.since(0) if e.kind.startswith("job.")]
    assert [e.kind for e in told] == ["job.added", "job.start", "job.end"]
    assert {e.user for e in told} == {AGENT.user}


async def test_job_runs_when_nobody_is_connected_and_its_output_is_kept(board):
    """Fault 1946 of the best-known implementation: nothing runs once the page is closed."""
    done = asyncio.Event()
    services = board.daemon.services
    services.events.subscribe(lambda event: event.kind == "job.end" and done.set())
    made = await http(
        board, "POST", "/api/jobs", {"schedule": "in 1s", "command": "echo up"}, status=201
    )
    async with asyncio.timeout(BOUND_S):
        await done.wait()
    job = await http(board, "GET", f"/api/jobs/{made['job']['id']}")
    assert (job["state"], job["last"]["status"]) == ("done", "ok")
    assert job["last"]["output"] == "up"


async def test_management_over_http(board):
    """Contract, section 6; the tool's rules hold there too."""
    made = await http(
        board, "POST", "/api/jobs", {"schedule": "0 9 * * *", "command": "ls"}, status=201
    )
    path = f"/api/jobs/{made['job']['id']}"
    changed = await http(board, "PATCH", path, {"tz": "Asia/Tokyo", "name": "files"})
    assert changed["job"]["next_run"].endswith("T09:00:00.000+09:00")
    ran = await http(board, "POST", f"{path}/run")
    assert ran["run"]["status"] == "ok"
    switched = await http(board, "PUT", f"{path}/state", {"enabled": False})
    assert switched["job"]["state"] == "disabled"
    listed = await http(board, "GET", "/api/jobs")
    assert (listed["total"], listed["jobs"][0]["name"]) == (1, "files")
    assert (await http(board, "GET", "/api/jobs", token="Bearer ada"))["total"] == 0
    await http(board, "GET", path, status=404, token="Bearer ada")
    problem = await http(board, "POST", "/api/jobs", {"schedule": "often"}, status=400)
    assert problem["faults"][0]["path"] == "schedule"
    await http(board, "GET", "/api/jobs?limit=x", status=400)
    await http(board, "PUT", f"{path}/state", {}, status=400)
    assert (await http(board, "DELETE", path))["status"] == "removed"
    await http(board, "DELETE", path, status=404)


async def test_job_that_the_command_line_adds_is_there_and_runs(board):
    """Faults 1532 and 888: a job that is added beside the running daemon vanishes."""
    added = await verb(
        board, "call", "cron", "schedule=0 9 * * *", "command=echo hi", "name=files"
    )
    assert "Cron job added: files" in added
    await call(board, schedule="every 1h", command="df")
    shown = await verb(board, "jobs")
    assert shown.splitlines()[0].split() == ["ID", "NAME", "SCHEDULE", "NEXT", "LAST", "STATE"]
    assert max(map(len, shown.splitlines())) <= 80
    assert {row.split()[1] for row in shown.splitlines()[1:]} == {"files", "df"}
    assert "run 1, " in await verb(board, "jobs", "run", "files")
    told = await verb(board, "jobs", "show", "files")
    assert "schedule  0 9 * * * (" in told
    assert ": ok\n    hi\n" in told
    assert await verb(board, "jobs", "disable", "files") == "files: disabled\n"
    assert await verb(board, "jobs", "enable", "files") == "files: waiting\n"
    rows = json.loads(await verb(board, "jobs", "--json"))
    assert {row["name"] for row in rows} == {"df", "files"}
    assert await verb(board, "jobs", "remove", "files") == "files: removed\n"
    assert "no job 'files'" in await verb(board, "jobs", "show", "files", code=1)
    assert "needs an id" in await verb(board, "jobs", "show", code=2)
    web = ("--url", board.url)
    assert "df" in await verb(board, "jobs", door=web)
    assert await verb(board, "jobs", "disable", "df", door=web) == "df: disabled\n"
    assert await verb(board, "jobs", "remove", "df", door=web) == "df: removed\n"


async def test_times_of_a_job_are_shown_in_its_own_zone(board):
    """A listing whose 09:00 reads as 14:00 contradicts the schedule beside it."""
    zone, nine = {"tz": "America/New_York"}, r"\d{4}-\d\d-\d\d 09:00:00-0[45]:00"
    added = await call(board, schedule="0 9 * * *", command="ls", name="ny", **zone)
    assert len(re.findall(nine, added.for_llm)) == 3
    assert re.search(nine, (await call(board, action="list")).for_llm)
    assert re.search(r"\d{4}-\d\d-\d\d 09:00 -0[45] ", await verb(board, "jobs"))
    assert len(re.findall(nine, await verb(board, "jobs", "show", "ny"))) == 3
    (row,) = json.loads(await verb(board, "jobs", "--json"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT09:00:00.000-0[45]:00", row["next_run"])
    ran = json.loads(await verb(board, "jobs", "run", "ny", "--json"))
    assert re.search(r"-0[45]:00$", ran["run"]["ended"])
    assert ran["job"]["created"][-6:] == ran["run"]["ended"][-6:]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"command": "rm -rf /"}, "not run: `rm -rf /`: rm that takes whole directories by force"),
        ({"tool": "exec", "arguments": {"cmd": "sudo id"}}, "not run: `sudo id`"),
        ({"command": "./mkfs.sh"}, r"refused by the owner's rule 'mkfs\.sh' (tools.exec.deny"),
    ],
)
async def test_command_that_would_be_refused_is_no_job(folder, said, reason):
    """Contract, section 1: checked when it is set up, and again when it runs."""
    config = r"tools: {exec: {deny: ['mkfs\.sh']}}"
    async with running(data=folder, http=False, config=config) as board:
        refused = await call(board, schedule="in 1h", **said)
        assert refused.is_error
        assert reason in refused.for_llm
        assert (await call(board)).structured["total"] == 0


async def test_job_on_what_is_granted_for_now_is_added_with_a_warning(folder):
    """A permission ends with its session, or by one use; a job goes on."""
    with tempfile.TemporaryDirectory(prefix="edged-outside-") as outside:
        async with running(data=folder, http=False) as board:
            policy, agent = (
                board.daemon.services.policy,
                msgspec.structs.replace(AGENT, session="s"),
            )
            asked = policy.request(agent, "s", outside, write=False)
            policy.answer(asked.id, "session", OWNER)
            made = await call(board, agent, schedule="in 1h", command=f"ls {outside}/in")
            (warning,) = made.structured["warnings"]
            assert warning.startswith(f"{outside}/in is reached by a permission")
            assert f"\nWarning: {warning}" in made.for_llm
            path = {"path": f"{outside}/a"}
            made = await call(board, agent, schedule="in 1h", tool="read_file", arguments=path)
            assert len(made.structured["warnings"]) == 1
            made = await call(board, agent, schedule="in 1h", command="ls /workspace /usr")
            assert not made.structured["warnings"]
            job_id = made.structured["job"]["id"]
            made = await call(board, agent, action="update", id=job_id, command=f"ls {outside}")
            assert len(made.structured["warnings"]) == 1


async def test_job_is_held_to_the_channels_of_its_tools(folder):
    """Faults 3109 and 3114: what a chat may not call, it may not schedule either."""
    config = "tools: {exec: {channels: ['telegram:42']}}"
    async with running(data=folder, http=False, config=config) as board:
        group = msgspec.structs.replace(OWNER, channel="telegram", chat_id="-100")
        own = msgspec.structs.replace(OWNER, channel="telegram", chat_id="42")
        refused = await call(board, group, schedule="in 1h", command="ls")
        assert "exec may not be called from channel 'telegram', chat '-100'" in refused.for_llm
        assert not (await call(board, own, schedule="in 1h", command="ls")).is_error


async def test_message_to_no_channel_is_no_job(folder):
    """Told where it is said: the channel of a tool's arguments is theirs."""
    config = "messages: {channels: {phone: {kind: events}}}"
    async with running(data=folder, http=False, config=config) as board:
        refused = await call(board, schedule="in 1h", message="hi", channel="fax")
        assert "cron: channel: no channel 'fax' is configured; there are: phone" in refused.for_llm
        there = {"text": "hi", "channel": "fax"}
        refused = await call(board, schedule="in 1h", tool="message", arguments=there)
        assert "cron: arguments.channel: no channel 'fax'" in refused.for_llm
        made = await call(board, schedule="in 1h", message="hi", channel="phone")
        assert not made.is_error


async def test_listing_says_that_jobs_wait_while_cron_is_switched_off(board):
    await call(board, schedule="every 1h", command="ls", name="files")
    assert "switched off" not in await verb(board, "jobs")
    await verb(board, "tools", "--disable", "cron")
    told = await verb(board, "jobs")
    assert "cron is switched off, and jobs wait: edged tools --enable cron" in told
    assert (await http(board, "GET", "/api/jobs"))["is_on"] is False
    await verb(board, "tools", "--enable", "cron")
    assert (await http(board, "GET", "/api/jobs"))["is_on"] is True


async def test_run_that_fails_is_the_verbs_exit_code(board):
    """Contract, section 2: 1 where the operation failed."""
    await call(board, schedule="every 1h", command="false", name="fails")
    assert ": error" in await verb(board, "jobs", "run", "fails", code=1)


async def test_jobs_outlive_the_daemon_and_wait_while_they_are_switched_off(folder):
    """`tools: {cron: {enabled: false}}` keeps them; a switch takes effect at once."""
    async with running(data=folder, http=False) as board:
        await call(board, schedule="in 1s", command="ls", name="kept")
    config = "tools: {cron: {enabled: false}}"
    async with running(data=folder, http=False, config=config) as board:
        ended = asyncio.Event()
        board.daemon.services.events.subscribe(lambda e: e.kind == "job.end" and ended.set())
        (job,) = (await board.daemon.services.cron().page(OWNER)).jobs
        assert (job.name, job.state) == ("kept", "waiting")
        board.daemon.control.switch(OWNER, "cron", True)
        async with asyncio.timeout(BOUND_S):
            await ended.wait()
        assert (await call(board)).structured["jobs"][0]["last"]["status"] == "ok"


async def test_running_job_is_ended_with_the_daemon_and_told_as_interrupted(folder):
    """At most once, and reported."""
    began = asyncio.Event()

    @tool("slow")
    async def slow(_params: Nothing, _ctx) -> results.Result:
        """Never ends."""
        began.set()
        await asyncio.Event().wait()
        return results.text("")

    config = "stop_grace: 0"
    async with running(data=folder, tools=(slow,), http=False, config=config) as board:
        await call(board, schedule="in 1s", tool="slow")
        async with asyncio.timeout(BOUND_S):
            await began.wait()
    async with running(data=folder, http=False) as board:
        (job,) = (await board.daemon.services.cron().page(OWNER)).jobs
        assert (job.state, job.last.status) == ("done", "interrupted")
        assert "it is not run again" in job.last.output


async def test_daemon_without_jobs_imports_nothing_of_them(tmp_path):
    """Architecture: start-up and idle cost are features."""
    code = (
        "import asyncio, sys\n"
        "from edged.testing import running\n"
        "async def main():\n"
        f"    async with running(data={str(tmp_path)!r}, http=False):\n"
        "        heavy = {'croniter', 'sqlite3', 'zoneinfo', 'edged.cron.service'}\n"
        "        print(sorted(heavy & sys.modules.keys()))\n"
        "asyncio.run(main())\n"
    )
    tmp_path.chmod(0o755)
    config = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S
    )
    assert config.stdout == "[]\n", config.stderr


# kill -9, and a full disk ------------------------------------------------------------------


def pid_of(path):
    """Who listens on a socket (unix(7), SO_PEERCRED)."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid


def add(client, number):
    """A job that is acknowledged: its id."""
    said = {"tool": "echo", "arguments": {"text": f"{number}"}, "name": f"job {number}"}
    schedule = "in 1s" if number % 3 == 0 else "every 1h"
    return client.call("cron", {"schedule": schedule, **said}).structured["job"]["id"]


def test_nothing_acknowledged_is_lost_by_kill_9(place, until):  # noqa: F811
    """Issue 4, Shows: kill -9 at random moments during writes of jobs."""
    chance = random.Random(20_270_101)
    kept = []
    for round_number in range(6):
        place.start(until)
        with place.client() as client:
            for number in range(chance.randrange(1, 12)):
                kept.append(add(client, 100 * round_number + number))
        process = place.process
        with socket.socket(socket.AF_UNIX) as link:
            # More that nobody waits for, so that it dies in the midst of writing.
            link.connect(place.socket)
            said = {"schedule": "every 1h", "tool": "echo", "arguments": {"text": "x"}}
            body = {"name": "cron", "arguments": said}
            for number in range(50):
                line = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": body}
                link.sendall(json.dumps(line).encode() + b"\n")
            link.settimeout(BOUND_S)
            for _ in range(chance.randrange(8)):
                link.recv(1)
            process.send_signal(signal.SIGKILL)
        process.wait(BOUND_S)
    place.start(until)
    jobs = place.ask("edged/jobs", limit=1_000)["jobs"]
    assert set(kept) <= {job["id"] for job in jobs}

    def once():
        """The runs of each one-time job, when all of them had theirs."""
        found = [place.ask("edged/jobs", action="show", id=job["id"]) for job in jobs]
        rows = [one["runs"] for one in found if one["schedule"] == "in 1s"]
        return rows if rows and all(rows) else None

    begun = [
        sum(row["status"] not in ("missed", "skipped") for row in rows)
        for rows in until("the one-time jobs are over", once)
    ]
    assert max(begun) == 1, "a one-time job ran twice"
    assert "was broken" not in place.stderr()
    place.stop()


def test_nothing_acknowledged_is_lost_on_a_full_disk(place, until):  # noqa: F811
    """Issue 4, Shows: a full disk (a small tmpfs), and kill -9 there."""
    os.mkdir(place.data)
    room = ["--size", f"{1 << 20}", "--perms", "0755", "--tmpfs", place.data]
    caps = ["--cap-add", "ALL"] if os.geteuid() == 0 else []
    # Again and again on the same tmpfs, which lives as long as this shell.
    again = ["sh", "-c", 'while :; do "$@"; done', "sh"]
    place.start(
        until, "bwrap", "--die-with-parent", *caps, "--dev-bind", "/", "/", *room, "--", *again
    )
    first = pid_of(place.socket)
    kept = []
    try:
        with place.client() as client, pytest.raises(AssertionError, match="full"):
            while len(kept) < 10_000:
                said = {"schedule": "every 1h", "tool": "echo", "arguments": {"text": "x" * 900}}
                result = client.call("cron", said)
                assert not result.is_error, result.for_llm
                kept.append(result.structured["job"]["id"])
        assert len(kept) > 20
        assert place.call("echo", text="serves").for_llm == "serves"
        with pytest.raises(StoreError, match="free some space"):
            said = {"schedule": "in 1h", "tool": "echo", "arguments": {"text": "x" * 15_000}}
            place.ask("edged/jobs", action="add", job=said)
        os.kill(first, signal.SIGKILL)
        until("another one serves", lambda: _serves(place.socket, first))
        assert {job["id"] for job in place.ask("edged/jobs", limit=1_000)["jobs"]} >= set(kept)
        assert "was broken" not in place.stderr()
    finally:
        place.kill()


def _serves(path, first):
    try:
        return pid_of(path) != first
    except OSError:
        return False
