"""`exec` in real sandboxes, of a daemon in this process: commands, sessions, grants, the wall."""

import asyncio
import contextlib
import gc
import json
import os
import re
import shlex
import shutil
import signal
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from edged import workspace
from edged.control import Decision
from edged.errors import StoreError, ToolUnavailableError, UnknownToolError
from edged.identity import Caller
from edged.sandbox.frames import Output
from edged.sandbox.profile import Limits
from edged.sandbox.run import OUTPUT_RATE
from edged.testing import running
from edged.tool import Permissions

ROOT = Path(__file__).parents[2]
SPECIFICATION = (ROOT / "tests" / "data" / "tools-api.md").read_text()
HOSTILE = ROOT / "tests" / "data" / "hostile"
BOUND_S = 30.0

OWNER = Caller("local", "owner", "", "unix", "uid 0")
ADA = Caller("ada@example.org", "agent", "s1", "unix", "uid 1000")
BOB = Caller("bob@example.org", "agent", "s2", "unix", "uid 1001")


class Box:
    """A daemon and its `exec`."""

    def __init__(self, running, folder):
        self.daemon, self.folder = running.daemon, folder
        self.services = running.daemon.services

    async def exec(self, caller=ADA, on_update=None, **arguments):
        raw = json.dumps(arguments).encode()
        async with asyncio.timeout(BOUND_S):
            call = self.daemon.dispatcher.start(caller, None, "exec", raw, on_update=on_update)
            return await call.wait()

    async def start(self, command, caller=ADA, **arguments):
        """The id of a session."""
        result = await self.exec(caller, command=command, background=True, **arguments)
        assert not result.is_error, result.for_llm
        return result.structured["sessionId"]

    async def ended(self, session, caller=ADA):
        """Wait until a session is over."""
        while True:
            polled = await self.exec(caller, action="poll", sessionId=session, timeout=1)
            if polled.structured["status"] != "running":
                return

    async def shown(self, session, text, caller=ADA):
        """What a session wrote, read until `text` is in it."""
        output = ""
        async with asyncio.timeout(BOUND_S):
            while text not in output:
                result = await self.exec(caller, action="read", sessionId=session, timeout=BOUND_S)
                output += result.structured["output"]
                assert text in output or result.structured["status"] == "running", output
        return output

    def workspace(self, caller=ADA):
        return Path(self.folder, caller.user, "workspace")

    def grant(self, path, duration="session", *, write=False, caller=ADA):
        request = self.services.policy.request(caller, caller.session, path, write=write)
        return self.services.policy.answer(request.id, duration, OWNER)


@contextlib.asynccontextmanager
async def opened(config=""):
    folder = tempfile.mkdtemp(prefix="edged-exec-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    try:
        async with running(data=folder, config=config, http=False) as it:
            yield Box(it, folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def box():
    async with opened() as made:
        yield made


@pytest.fixture
def outside():
    """A directory of the host that the tools' account may read and write."""
    folder = tempfile.mkdtemp(prefix="edged-outside-", dir="/var/tmp")
    os.chmod(folder, 0o777)
    yield Path(folder)
    shutil.rmtree(folder)


def marked(mark):
    """Processes of this machine whose command line has a mark."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in Path("/proc", name, "cmdline").read_bytes():
                found.append(int(name))
    return found


# The specification


def examples():
    """Every JSON example of `exec` in the document, its comments left out."""
    section = SPECIFICATION.split("### Shell/Exec Tool")[1].split("\n### ")[0]
    for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL):
        yield json.loads(re.sub(r"//.*", "", block))


@pytest.mark.parametrize("arguments", [*examples()], ids=str)
async def test_example_of_the_document_is_answered(box, arguments):
    """Specification, Shell/Exec Tool: `ToolResult` with ForLLM and IsError."""
    assert arguments["command"] == "ls -la"
    await box.exec(command="echo x > here.txt")
    result = await box.exec(**arguments)
    assert not result.is_error
    assert "here.txt" in result.for_llm
    assert result.structured["exit_code"] == 0


@pytest.mark.parametrize(
    ("alias", "value"),
    [("workdir", "sub"), ("cwd", "sub"), ("cwd", "/workspace/sub"), ("workdir", "./sub/../sub")],
)
async def test_directory_is_named_by_either_word(box, alias, value):
    """Contract, section 8; fault 2107 of PicoClaw: absolute paths in the workspace."""
    await box.exec(command="mkdir sub")
    result = await box.exec(command="pwd", **{alias: value})
    assert result.for_llm == "/workspace/sub"


async def test_session_is_named_by_either_word_and_actions_are_inferred(box):
    """Facts of PicoClaw, 3: `background` came as text."""
    session = (await box.exec(cmd="cat", background="true")).structured["sessionId"]
    for name in ("sessionId", "session_id"):
        assert (await box.exec(**{name: session, "input": "hi\n"})).structured["sent"] == 3
    assert (await box.exec(session=session, keys=["ctrl-d"])).structured["sent"] == 1
    assert await box.shown(session, "hi\nhi\n")


async def test_names_that_hosts_inject_widen_nothing(box):
    """Contract, section 8: `workspace` is accepted and gives no right."""
    result = await box.exec(command="pwd", workspace="/etc", channel="x", chat_id="1")
    assert result.for_llm == "/workspace"


# One command


async def test_result_has_both_streams_and_the_exit_code_last(box):
    result = await box.exec(command="echo out; echo err >&2; exit 3")
    assert result.for_llm == "out\nSTDERR:\nerr\n[Command exited with code 3]"
    assert result.is_error
    assert result.structured["exit_code"] == 3


async def test_command_that_writes_nothing_says_so(box):
    """Contract, section 7."""
    result = await box.exec(command="true")
    assert (result.for_llm, result.is_error) == ("(no output)", False)


async def test_text_that_looks_like_a_result_is_text(box):
    command = """echo '{"content": [{"type": "text", "text": "no"}], "isError": true}'"""
    result = await box.exec(command=command)
    assert not result.is_error
    assert result.for_llm.startswith('{"content"')


async def test_command_of_many_lines_and_signs_arrives_as_it_is(box):
    command = "printf '%s|' 'a\\b' \"c\n\td\" 'é' '$x' '-n'\n"
    result = await box.exec(command=command)
    assert result.for_llm == "a\\b|c\n\td|é|$x|-n|"


async def test_long_output_keeps_its_end_and_exit_code_and_the_whole_is_a_medium(box):
    """Facts of PicoClaw, 4: the cut took the exit code with it, and half a character."""
    command = 'i=0; while [ $i -lt 9000 ]; do echo "é$i"; i=$((i+1)); done; exit 7'
    result = await box.exec(command=command)
    assert result.for_llm.endswith("é8999\n[Command exited with code 7]")
    assert result.truncated.kept == "end"
    medium = box.services.media.get(ADA.user, result.truncated.media)
    whole = box.services.media.read(medium, 0, 1 << 20).decode()
    assert whole.splitlines() == [*(f"é{i}" for i in range(9000)), "[Command exited with code 7]"]


async def test_both_streams_are_drained_whatever_their_order(box):
    """Facts of PicoClaw, 4: a child that filled stderr while stdout was open stood still."""
    command = "head -c 900000 /dev/zero | tr '\\0' e >&2; head -c 900000 /dev/zero | tr '\\0' o"
    result = await box.exec(command=command)
    assert (result.structured["exit_code"], result.structured["output_bytes"]) == (0, 1_800_000)


async def test_output_is_shown_while_it_comes(box):
    updates = []
    seen = asyncio.Event()

    def on_update(content):
        updates.append(content[0].text)
        if "one" in updates[-1]:
            seen.set()

    command = "mkfifo fifo; echo one >&2; cat fifo"
    pending = asyncio.create_task(box.exec(command=command, on_update=on_update))
    async with asyncio.timeout(BOUND_S):
        await seen.wait()
        await box.exec(command="echo two > fifo")
        assert (await pending).for_llm == "two\nSTDERR:\none"


async def test_timeout_of_the_call_is_kept_and_what_was_written_shown(box):
    """Fault of csgclaw, 174: the timeout was ignored; fault 311 of PicoClaw: children were left."""
    mark = "98765.4321"
    command = f"echo begun; setsid sleep {mark} & (sleep {mark} &) ; trap '' TERM; sleep {mark}"
    result = await box.exec(command=command, timeout=0.3)
    assert result.for_llm == "begun\n[Command timed out after 0.3 s]"
    assert result.structured["timed_out"]
    assert marked(mark) == []


async def test_timeout_is_bounded_by_the_configuration():
    async with opened("tools: {exec: {timeout: 1, timeout_max: 1}}\n") as box:
        # What nobody asked for is not told of.
        result = await box.exec(command="sleep 60")
        assert result.for_llm == "[Command timed out after 1 s]"
        result = await box.exec(command="sleep 60", timeout=3600)
        assert result.for_llm == (
            "[3600 s were asked for, 1 s are the most: tools: {exec: {timeout_max: …}} in "
            "edged.yaml]\n[Command timed out after 1 s]"
        )
        # An argument that a model fills with nothing is none.
        assert "after 1 s" in (await box.exec(command="sleep 60", timeout=0)).for_llm


async def test_what_another_action_is_for_is_not_passed_over(box):
    """With a session and no action it is read: a command would be lost."""
    result = await box.exec(command="ls", sessionId="s1")
    assert result.for_llm == "exec: command: belongs to action run"
    result = await box.exec(command="cat", data="hello")
    assert result.for_llm == "exec: data: belongs to action write"


async def test_cancelled_call_leaves_no_process(box):
    mark = "87654.321"
    pending = asyncio.create_task(
        box.exec(command=f"touch begun; trap '' TERM; sleep {mark} & wait")
    )
    session = await box.start("until [ -e begun ]; do read -t 0.01; done; echo there")
    await box.shown(session, "there")
    pending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await pending
    async with asyncio.timeout(BOUND_S):
        while marked(mark):
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


async def test_end_by_a_signal_is_named(box):
    result = await box.exec(command="kill -SEGV $$")
    assert result.for_llm == "[Command exited with code 139: killed by SIGSEGV]"


async def test_missing_directory_and_bad_arguments_are_told_with_what_to_do(box):
    assert (
        "there is no directory '/workspace/nope'"
        in (await box.exec(command="a", cwd="nope")).for_llm
    )
    assert "is over 100 KiB" in (await box.exec(command="#" + "a" * (100 << 10))).for_llm
    assert "NUL" in (await box.exec(command="echo \0")).for_llm
    assert "session not found: 'nope'" in (await box.exec(action="poll", sessionId="nope")).for_llm


async def test_refused_command_does_not_run(box):
    result = await box.exec(command="touch made; r\\m -rfv /")
    assert result.is_error
    assert result.for_llm.startswith("not run: `rm -rfv /`")
    assert not (box.workspace() / "made").exists()


@pytest.mark.parametrize(
    "command",
    [
        "echo x 2>/dev/null >/dev/stdout",
        "echo https://example.org/a example.org/b skills/x.js",
        "mkdir -p d && echo x > /workspace/d/a && cd d && cat /workspace/d/a",
        "echo kill x > f && grep kill f",
        "sleep 60 & kill $! && echo x",
    ],
)
async def test_harmless_command_runs(box, command):
    """Faults 964, 1203, 762, 1042 and 2107 of PicoClaw: what its guard refused by mistake."""
    result = await box.exec(command=command)
    assert not result.is_error, result.for_llm
    assert "x" in result.for_llm


async def test_workspace_has_its_name_of_the_host_too(box):
    """Fault 2107 of PicoClaw: absolute paths of the workspace were refused."""
    result = await box.exec(command=f"echo x > {box.workspace()}/a && cat /workspace/a")
    assert result.for_llm == "x"
    assert (await box.exec(command="cat a", workdir=str(box.workspace()))).for_llm == "x"


# Sessions


async def test_session_with_a_terminal_has_job_control_and_ctrl_c(box):
    """The terminal is of the sandbox's own devpts (pty(7), termios(3), bash(1) JOB CONTROL)."""
    session = await box.start("PS1='$ ' bash --norc -i", pty=True)

    async def type_(text):
        await box.exec(action="write", sessionId=session, data=text)

    await type_("tty; stty size\n")
    assert "/dev/pts/0\n24 80\n" in await box.shown(session, "24 80")
    # One process says so and waits: between two, a shell may not have begun the second.
    await type_("sh -c \"echo be''gun; exec sleep 100\"\n")
    await box.shown(session, "begun\n")
    await box.exec(action="send-keys", sessionId=session, keys="ctrl-c")
    await box.shown(session, "^C")
    await type_("echo en''ded $?\n")
    await box.shown(session, "ended 130")
    await type_("sleep 100 &\n")
    await box.shown(session, "[1]")
    await type_("fg\n")
    await box.shown(session, "\nsleep 100\n")
    await box.exec(action="send-keys", sessionId=session, keys="ctrl-c")
    await box.shown(session, "^C")
    await type_("jobs; exit 5\n")
    polled = await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    assert polled.structured["exitCode"] == 5


async def test_command_with_a_terminal_may_be_waited_for(box):
    result = await box.exec(command="test -t 0 && test -t 1 && tty; exit 4", pty=True)
    assert result.for_llm == "/dev/pts/0\n[Command exited with code 4]"


async def test_nothing_is_put_into_a_terminal_but_by_its_keys(box):
    """CVE-2017-5226: TIOCSTI; CVE-2023-28100: TIOCLINUX."""
    code = (
        "import ctypes; c = ctypes.CDLL(None); c.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, "
        "ctypes.c_char_p]; print([c.ioctl(0, n, b'#') for n in (0x5412, 0x5412 | 1 << 32, 0x541C)])"
    )
    result = await box.exec(command=f'python3 -c "{code}"', pty=True)
    assert result.for_llm == "[-1, -1, -1]"


async def test_exit_code_zero_is_shown_and_what_was_not_read_stays(box):
    """Facts of PicoClaw, 4: `exitCode` was left out when 0; kill lost the output."""
    session = await box.start("echo last")
    polled = await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    assert (polled.structured["status"], polled.structured["exitCode"]) == ("exited", 0)
    read = await box.exec(action="read", sessionId=session)
    assert read.for_llm == "last\n[Command exited with code 0]"
    listed = (await box.exec(action="list")).structured["sessions"]
    assert [(one["id"], one["status"], one["exitCode"]) for one in listed] == [
        (session, "exited", 0)
    ]


async def test_killed_session_is_dead_with_all_that_it_started_and_still_read(box):
    mark = "76543.21"
    session = await box.start(f"echo begun; trap '' TERM INT; setsid sleep {mark} & sleep {mark}")
    await box.exec(action="poll", sessionId=session)
    async with asyncio.timeout(BOUND_S):
        while len(marked(mark)) < 2:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
    killed = await box.exec(action="kill", sessionId=session)
    assert killed.structured["status"] == "exited"
    assert not [
        pid for pid in marked(mark) if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert "begun" in (await box.exec(action="read", sessionId=session)).for_llm
    late = await box.exec(action="write", sessionId=session, data="x")
    assert "has ended: [Command was killed]" in late.for_llm


async def test_session_is_its_callers_alone(box):
    """Facts of PicoClaw, 4: any caller could read and kill any session."""
    session = await box.start("cat")
    others = [
        BOB,
        Caller(ADA.user, "agent", "s9", "unix", ADA.peer),
        Caller(ADA.user, "agent", ADA.session, "unix", "token kitchen"),
    ]
    for caller in others:
        for action in ("poll", "read", "write", "kill", "send-keys"):
            result = await box.exec(caller, action=action, sessionId=session, data="x", keys="a")
            assert result.for_llm.startswith(f"session not found: {session!r}")
        assert (await box.exec(caller, action="list")).structured == {"sessions": []}
    assert (await box.exec(action="poll", sessionId=session)).structured["status"] == "running"


async def test_sessions_of_one_caller_are_bounded():
    async with opened("tools: {exec: {sessions: 2}}\n") as box:
        first, second = await box.start("cat"), await box.start("cat")
        third = await box.exec(command="cat", background=True)
        assert third.is_error
        assert f"2 sessions run, the most that may: end one of {first}, {second}" in third.for_llm
        await box.start("cat", BOB)
        await box.exec(action="kill", sessionId=first)
        await box.start("cat")


async def test_what_a_token_began_and_was_given_ends_with_it(box, outside):
    """A later token of its name may be another's: it had its sessions and its grants."""
    (outside / "a").write_text("open")
    tokens, policy = box.daemon.control.tokens, box.services.policy
    tokens.add("ada", ADA.user, "agent")
    ada = Caller(ADA.user, "agent", "", "http", "token ada")
    other = Caller(ADA.user, "agent", "", "http", "token tablet")
    for caller in (ada, other):
        box.grant(str(outside), caller=caller)
        box.grant(str(outside / "a"), "once", caller=caller)
        policy.request(caller, "", str(outside / "b"))
    box.grant(str(outside / "c"), "deny", caller=ada)
    loop = "while sleep 0.01; do echo x > $0; done"
    ended = await box.start(f"exec sh -c '{loop}' ada", ada)
    lives = await box.start(f"exec sh -c '{loop}' other", other)
    killed = box.services.shell.session(ada, ended)
    tokens.revoke("ada")
    async with asyncio.timeout(BOUND_S):
        await killed.wait(lambda: False, BOUND_S)
    assert killed.outcome.reason == "cancelled"
    tokens.add("ada", ADA.user, "agent")
    assert (await box.exec(ada, action="list")).structured == {"sessions": []}
    assert "session not found" in (await box.exec(ada, action="read", sessionId=ended)).for_llm
    assert policy.granted(ada, "") == ()
    assert len(policy.granted(other, "")) == 2
    assert [one.who for one in policy.pending()] == [other.who]
    assert [one.path for one in policy.denied()] == [f"{outside}/c"]
    polled = await box.exec(other, action="poll", sessionId=lives)
    assert polled.structured["status"] == "running"


async def test_a_full_disk_keeps_no_revoked_token_at_work(box, monkeypatch, capsys):
    tokens = box.daemon.control.tokens
    tokens.add("ada", ADA.user, "agent")
    ada = Caller(ADA.user, "agent", "", "http", "token ada")
    session = await box.start("sleep 1000", ada)
    killed = box.services.shell.session(ada, session)

    def full(who):
        raise StoreError("no space left")

    monkeypatch.setattr(box.services.policy, "end_of", full)
    tokens.revoke("ada")
    async with asyncio.timeout(BOUND_S):
        await killed.wait(lambda: False, BOUND_S)
    assert killed.outcome.reason == "cancelled"
    assert "granted to token ada is not stored as gone: no space left" in capsys.readouterr().err


KEEPER = """---
name: {name}
description: Uses a key.
version: 1
language: {language}
inputs: {{}}
{more}---
"""
ASKS = """echo "$HOME $OFFICER_USER_HOME $PWD"; python3 -c 'import json; print("mine")'"""
BY_NODE = """import { execFileSync } from "node:child_process";
export function execute() { return execFileSync("sh", ["-c", SAID]) + ""; }
"""
STEALS = "import os; open('/workspace/leak', 'w').write(os.environ.get('KEY', 'no key'))"


@pytest.mark.parametrize("language", ["bash", "typescript"])
async def test_a_callers_files_take_no_variable_from_a_global_tool(language):
    """A python3 that the tool starts ran what an agent had laid into its home or workspace."""
    entry, text = "index.sh", ASKS
    if language == "typescript":
        entry, text = "index.mjs", BY_NODE.replace("SAID", json.dumps(ASKS))
    async with opened("tools: {keeps: {env: {KEY: s3cret-of-the-owner}}}\n") as box:
        for name, more in (("keeps", "env: [KEY]\n"), ("plain", "")):
            tool = Path(box.folder, "tools", name)
            tool.mkdir(parents=True)
            tool.joinpath("TOOL.md").write_text(
                KEEPER.format(name=name, language=language, more=more)
            )
            tool.joinpath(entry).write_text(text)
        lays = (
            "import os, site; d = site.getusersitepackages(); os.makedirs(d); "
            f"[open(p, 'w').write({STEALS!r}) for p in (d + '/usercustomize.py', 'json.py')]"
        )
        assert not (await box.exec(command=f"/usr/bin/python3 -c {shlex.quote(lays)}")).is_error
        call = box.daemon.dispatcher.start
        async with asyncio.timeout(BOUND_S):
            kept = await call(ADA, None, "keeps", b"").wait()
            assert kept.for_llm.strip() == "/tmp /officer/user/home /officer/user/workspace\nmine"
            assert not (box.workspace() / "leak").exists()
            # One without has what the specification says.
            plain = await call(ADA, None, "plain", b"").wait()
        home = "/officer/user/home"
        assert plain.for_llm.strip() == f"{home} {home} /officer/user/workspace\nmine"
        assert (box.workspace() / "leak").read_text() == "no key"


async def test_tools_change_also_once_edged_read_a_strangers_page(box):
    """One web_fetch kept every tool as it was until the end: its permissions, too."""
    folder = Path(box.folder)
    script = folder / "own" / "page.py"
    script.parent.mkdir()
    script.write_text(
        "def execute(call_id, params):\n    return {'content': [], 'structured': {}}\n"
    )
    runner = box.daemon.catalogue.runner
    call = box.daemon.dispatcher.start
    await runner.pool()
    assert await runner.isolate("page", str(script), (), {}, limits=Limits(), caller=ADA) == {}
    tool = folder / "tools" / "later"
    tool.mkdir(parents=True)
    for text in ("one", "two"):
        manifest = KEEPER.format(name="later", language="bash", more=f"label: {text}\n")
        (tool / "TOOL.md").write_text(manifest)
        (tool / "index.sh").write_text(f"echo {text}")
        await box.daemon.catalogue.sync(dry_run=False)
        async with asyncio.timeout(BOUND_S):
            assert (await call(ADA, None, "later", b"").wait()).for_llm == text
        assert box.daemon.control.describe(ADA, "later").label == text
    shutil.rmtree(tool)
    await box.daemon.catalogue.sync(dry_run=False)
    with pytest.raises(UnknownToolError):
        call(ADA, None, "later", b"")


async def test_nothing_is_held_of_what_commands_wrote_once_it_is_stored(box):
    """Six such calls took the daemon from 38 to 671 MB, and most of that stayed."""
    dispatcher = box.daemon.dispatcher

    def holds():
        return sum(
            len(one)
            for o in gc.get_objects()
            if isinstance(o, Output)
            for one in o.parts()
            if isinstance(one, bytes)
        )

    gc.disable()
    try:
        command = "head -c 9000000 /dev/zero; head -c 3000000 /dev/zero >&2"
        calls = [
            dispatcher.start(caller, None, "exec", json.dumps({"command": command}).encode())
            for caller in (ADA, BOB, ADA, BOB)
        ]
        calls.append(
            dispatcher.start(
                ADA, None, "exec", json.dumps({"command": f"{command}; cat"}).encode()
            )
        )
        async with asyncio.timeout(BOUND_S):
            ended = [await call.wait() for call in calls]
        assert [r.structured["output_bytes"] for r in ended] == [12_000_000] * 5
        assert all(r.truncated.bytes > 64 << 10 for r in ended)
        assert holds() == 0
    finally:
        gc.enable()
    assert all(call.share.size == 0 for call in calls)


async def test_finished_sessions_are_kept_for_a_while_and_not_for_ever(box):
    ids = []
    for _ in range(18):
        ids.append(await box.start("true"))
        await box.exec(action="poll", sessionId=ids[-1], timeout=BOUND_S)
    listed = (await box.exec(action="list")).structured["sessions"]
    assert [one["id"] for one in listed] == ids[2:]


async def test_unread_output_is_bounded_and_its_loss_is_counted(box):
    session = await box.start("head -c 3000000 /dev/zero | tr '\\0' a; echo end")
    await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    read = await box.exec(action="read", sessionId=session)
    lost = 3_000_004 - (1 << 20)
    assert (read.structured["dropped"], read.structured["output"]) == (lost, None)
    assert read.for_llm.endswith("aend\n[Command exited with code 0]")
    medium = box.services.media.get(ADA.user, read.truncated.media)
    whole = box.services.media.read(medium, 0, 2 << 20).decode()
    assert whole.startswith(f"[{lost} bytes were not read in time and are gone]\naaa")


async def test_input_that_is_not_read_is_bounded(box):
    session = await box.start("sleep 600")
    write = {"action": "write", "sessionId": session, "data": "x" * 60_000}
    results = [await box.exec(**write) for _ in range(4)]
    assert [result.is_error for result in results[:2]] == [False, False]
    assert "does not read its input" in results[-1].for_llm


async def test_session_without_a_terminal_takes_ctrl_c_and_the_end_of_input(box):
    code = "import sys, time; print(len(sys.stdin.read()), flush=True); time.sleep(100)"
    session = await box.start(f"python3 -c '{code}'")
    await box.exec(action="write", sessionId=session, data="12345")
    await box.exec(action="send-keys", sessionId=session, keys="ctrl-d")
    await box.shown(session, "5")
    await box.exec(action="send-keys", sessionId=session, keys="ctrl-c")
    polled = await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    assert polled.structured["exitCode"] == 130


async def test_session_ends_at_its_timeout(box):
    session = await box.start("sleep 600", timeout=0.2)
    polled = await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    assert (polled.structured["reason"], polled.structured["exitCode"]) == ("timeout", None)
    assert "[Command timed out after 0.2 s]" in polled.for_llm


async def test_sessions_end_with_their_callers_session_and_with_the_daemon():
    mark = "65432.109"
    async with opened() as box:
        await box.start(f"sleep {mark}1")
        await box.start(f"sleep {mark}2", OWNER)
        box.daemon.control.session_ended(ADA)
        async with asyncio.timeout(BOUND_S):
            while marked(f"{mark}1"):
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        assert marked(f"{mark}2")
    assert marked(mark) == []


async def test_end_of_a_session_is_an_event(box):
    events = []
    stop = box.services.events.subscribe(lambda e: events.append((e.kind, e.user, e.data)))
    session = await box.start("exit 9")
    await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    stop()
    facts = {"sessionId": session, "exitCode": 9, "reason": "exit"}
    assert ("exec.ended", ADA.user, facts) in events


# The wall


@pytest.fixture
def plant(outside):
    """What a careless host leaves about: a secret, sockets, a process to be hit."""
    (outside / "secret").write_text("secret")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as path,
        socket.socket(socket.AF_UNIX) as name,
    ):
        path.bind(f"{outside}/socket")
        name.bind(f"\0{outside.name}")
        path.listen()
        name.listen()
        yield {
            "PLANT": str(outside),
            "ABSTRACT": outside.name,
            "PORT": str(tcp.getsockname()[1]),
            "VICTIM": str(os.getpid()),
            "ENTRY": "/workspace/body",
        }


WITH_OTHER_RIGHTS = {
    "devices.py",
    "fork_bomb.sh",  # bash gives up before it can say so; the other one says it
    "read_secret.py",  # the root has an empty /var, for the workspace's name on the host
    "write_outside.py",  # the workspace is written
}
BODIES = sorted({p.name for p in HOSTILE.iterdir()} - WITH_OTHER_RIGHTS)


@pytest.mark.parametrize("body", BODIES)
async def test_hostile_body_is_held(box, plant, body):
    """The bodies that the sandbox of tools is tested with."""
    await box.exec(command="true")
    shutil.copy(HOSTILE / body, box.workspace() / "body")
    os.chmod(box.workspace() / "body", 0o644)
    env = " ".join(f"{name}={value}" for name, value in plant.items())
    run = "python3" if body.endswith(".py") else "bash"
    result = await box.exec(command=f"env {env} {run} body")
    assert "HELD" in result.for_llm.splitlines(), result.for_llm
    assert "ESCAPED" not in result.for_llm


async def test_kill_reaches_its_own_processes_only(box):
    """Fault 1127 of PicoClaw: a model ended the daemon by `kill`."""
    result = await box.exec(command=f"kill -9 {os.getpid()} 1; kill -9 -1; echo alive")
    assert "alive" in result.for_llm
    assert f"kill: ({os.getpid()}) - No such process" in result.for_llm


async def test_nothing_of_the_daemons_environment_is_in_a_commands(box, monkeypatch):
    """Fault 3079 of PicoClaw: `jq` read secrets from the environment."""
    monkeypatch.setenv("EDGED_TEST_SECRET", "s3cret")
    result = await box.exec(command="env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "s3cret" not in result.for_llm
    assert set(re.findall(r"^(\w+)=", result.for_llm, re.MULTILINE)) <= {
        *("HOME", "LANG", "PATH", "PWD", "SHLVL", "TMPDIR", "_", "OFFICER_USER_HOME"),
        *("OFFICER_USER_ROOT", "PI_TOOLS_DIRS", "OFFICER_EMAIL_DB", "OFFICER_RESOURCES"),
    }


@pytest.mark.parametrize(
    "way", ["link/secret", "make", "python3 -c 'print(open(\"link/secret\").read())'"]
)
async def test_link_out_of_the_workspace_leads_nowhere(box, outside, way):
    """Faults 1526 and 529 of PicoClaw: links, and children of make, went by its guard."""
    (outside / "secret").write_text("s3cret")
    await box.exec(
        command=f"ln -s {outside} link; printf 'all:\\n\\tcat link/secret\\n' > Makefile"
    )
    result = await box.exec(command=f"cat {way}" if way == "link/secret" else way)
    assert result.is_error
    assert "s3cret" not in result.for_llm


async def test_path_outside_is_asked_for_by_request_permission(box, outside):
    (outside / "a.txt").write_text("content")
    for arguments in (
        {"command": f"cat {outside}/a.txt"},
        {"command": "ls", "workdir": str(outside)},
    ):
        result = await box.exec(**arguments)
        path = arguments.get("workdir", f"{outside}/a.txt")
        assert result.is_error
        assert f"call request_permission with path '{path}'" in result.for_llm
    session = await box.start(f"cat {outside}/a.txt")
    await box.exec(action="poll", sessionId=session, timeout=BOUND_S)
    assert "request_permission" in (await box.exec(action="read", sessionId=session)).for_llm


@pytest.mark.parametrize("command", ["echo x > {}/new", "echo x >> {}/new"])
async def test_file_that_output_would_make_outside_asks_for_its_directory(box, outside, command):
    """What is not there cannot be asked for, and a right to read would not help."""
    result = await box.exec(command=command.format(outside))
    assert result.is_error
    wanted = f"call request_permission with path '{outside}' and write: true"
    assert wanted in result.for_llm


@pytest.mark.parametrize("name", ["new", "there"])
async def test_writing_into_what_is_granted_for_reading_asks_to_write(box, outside, name):
    (outside / "there").write_text("x")
    box.grant(str(outside))
    result = await box.exec(command=f"echo x > {outside}/{name}")
    assert result.is_error
    assert "request_permission with" in result.for_llm
    assert "write: true" in result.for_llm


async def test_path_that_is_not_there_is_not_asked_for(box):
    assert "request_permission" not in (await box.exec(command="cat /api/v1/users")).for_llm


async def test_nobody_learns_what_lies_below_a_closed_directory(box, outside):
    """What others may not search is told alike, whether it is there or not."""
    (outside / "closed").mkdir(mode=0o700)
    (outside / "closed" / "there").touch()
    said = []
    for name in ("there", "elsewhere"):
        result = await box.exec(command=f"cat {outside}/closed/{name}")
        said.append(result.for_llm.replace(name, "NAME"))
    assert said[0] == said[1]
    assert "request_permission" in said[0]


async def test_where_nobody_may_ask_nobody_is_told_to(outside):
    async with opened("tools: {exec: {ask_permission: false}}\n") as box:
        result = await box.exec(command="ls", workdir=str(outside))
        assert result.for_llm == f"{outside} is outside of what a command may see"


async def test_path_of_the_file_tools_is_told_as_theirs(outside):
    """A pattern of `tools.files.read` names files, and shows commands none."""
    (outside / "a").write_text("x")
    async with opened(f"tools: {{files: {{read: ['{outside}/*']}}}}\n") as box:
        result = await box.exec(command=f"cat {outside}/a")
        assert f"{outside}/a is for the file tools, not for commands" in result.for_llm


async def test_state_of_the_daemon_is_nobodys(box):
    result = await box.exec(command=f"ls {box.folder}/lock")
    assert f"{box.folder}/lock is edged's own, and not for commands" in result.for_llm


async def test_flood_is_ended(box):
    """Limit of a call (contract, section 10)."""
    result = await box.exec(command="yes")
    assert result.for_llm.endswith(
        "[Command was stopped after 64 MiB of output: write large output to a file]"
    )


# Grants


async def test_grant_shows_its_directory_and_no_more(box, outside):
    (outside / "in").mkdir()
    (outside / "in" / "a").write_text("granted")
    (outside / "b").write_text("s3cret")
    box.grant(str(outside / "in"))
    assert (await box.exec(command=f"cat {outside}/in/a")).for_llm == "granted"
    assert (await box.exec(command="cat a", workdir=str(outside / "in"))).for_llm == "granted"
    assert (await box.exec(command=f"cat {outside}/in/../b")).is_error
    assert (await box.exec(command=f"echo x > {outside}/in/a")).is_error
    assert (await box.exec(BOB, command=f"cat {outside}/in/a")).is_error


async def test_grant_to_write_writes(box, outside):
    box.grant(str(outside), write=True)
    assert not (await box.exec(command=f"echo x > {outside}/new")).is_error
    assert (outside / "new").read_text() == "x\n"


async def test_grant_once_is_used_up_by_the_command_that_names_it(box, outside):
    (outside / "a").write_text("granted")
    box.grant(str(outside), "once")
    assert not (await box.exec(command="ls")).is_error
    assert (await box.exec(command="cat a", workdir=str(outside))).for_llm == "granted"
    result = await box.exec(command=f"cat {outside}/a")
    assert "request_permission" in result.for_llm


async def test_grant_once_is_given_back_where_the_command_did_not_begin(box, outside):
    (outside / "a").write_text("granted")
    box.grant(str(outside), "once")
    result = await box.exec(command="ls", workdir=f"{outside}/missing")
    assert "there is no directory" in result.for_llm
    assert (await box.exec(command=f"cat {outside}/a")).for_llm == "granted"


async def test_refused_path_is_told_as_refused(box, outside):
    (outside / "a").write_text("x")
    box.grant(str(outside), "deny")
    result = await box.exec(command=f"cat {outside}/a")
    assert f"the owner refused {outside}" in result.for_llm
    assert "request_permission" not in result.for_llm


async def test_what_the_configuration_denies_in_a_granted_directory_is_not_shown(outside):
    """README: `deny` holds everywhere; a command would see the directory as a whole."""
    (outside / "in").mkdir()
    (outside / "in" / "b.key").write_text("s3cret")
    (outside / "a").write_text("open")
    async with opened("tools: {files: {deny: ['*.key']}}\n") as box:
        box.grant(str(outside), write=True)
        for command in (f"cat {outside}/in/b.key", f"cat {outside}/a {outside}/*/*"):
            result = await box.exec(command=command)
            assert "s3cret" not in result.for_llm
            assert f"refused {outside}/in/b.key (tools.files.deny)" in result.for_llm
        # A command that names nothing of it runs, and does not see it.
        assert (await box.exec(command="echo hi")).for_llm == "hi"
        assert "s3cret" not in (await box.exec(command=f"d={outside}; cat $d/in/*")).for_llm
        (outside / "in" / "b.key").unlink()
        assert (await box.exec(command=f"cat {outside}/a")).for_llm == "open"


@pytest.mark.parametrize("act", ["deny by path", "deny by id", "forget"])
async def test_what_is_taken_back_ends_the_commands_that_see_it(box, outside, act):
    """README: `deny` takes back what was granted there, also from what runs."""
    (outside / "a").write_text("open")
    other = await box.start("sleep 1000")
    grant = box.grant(str(outside))
    control = box.daemon.control
    reader = f"cat {outside}/a; while sleep 0.01; do cat {outside}/later 2>/dev/null; done"
    session = await box.start(reader)
    waiting = asyncio.create_task(box.exec(command=f"cat {outside}/a; touch began; sleep 1000"))
    async with asyncio.timeout(BOUND_S):
        while not (box.workspace() / "began").exists():
            await asyncio.sleep(0.005)
    if act == "forget":
        control.forget_permission(OWNER, grant.id)
    elif act == "deny by id":
        control.permit(OWNER, Decision("deny", grant.id))
    else:
        control.permit(OWNER, Decision("deny", path=str(outside), user=ADA.user))
    async with asyncio.timeout(BOUND_S):
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await box.ended(session)
    (outside / "later").write_text("AFTER")
    assert "AFTER" not in (await box.exec(action="read", sessionId=session)).for_llm
    # What sees nothing of it goes on.
    polled = await box.exec(action="poll", sessionId=other)
    assert polled.structured["status"] == "running"


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("act", ["deny", "deny inside", "deny writing", "forget"])
async def test_what_is_taken_back_while_a_command_is_made_ready_is_not_shown_to_it(
    box, outside, monkeypatch, act, background
):
    """The owner was told ok, and 12 of 12 such commands read on for up to an hour."""
    (outside / "a").write_text("open")
    grant = box.grant(str(outside), write=True)
    control, room = box.daemon.control, box.services.workspace.room
    left = room.left

    async def answered(caller, most):
        found = await left(caller, most)
        path = f"{outside}/a" if act == "deny inside" else str(outside)
        if act == "forget":
            control.forget_permission(OWNER, grant.id)
        else:
            write = True if act == "deny writing" else None
            decision = Decision(path=path, user=ADA.user, duration="deny", write=write)
            control.permit(OWNER, decision)
        return found

    monkeypatch.setattr(room, "left", answered)
    result = await box.exec(command=f"touch began; cat {outside}/a", background=background)
    assert result.is_error
    assert f"the permission for {outside} was used up or taken back meanwhile" in result.for_llm
    monkeypatch.setattr(room, "left", left)
    assert (await box.exec(command="ls")).for_llm == "(no output)"
    assert (await box.exec(action="list")).structured == {"sessions": []}


async def test_too_much_to_look_at_is_not_shown_where_something_is_denied(outside, monkeypatch):
    monkeypatch.setattr(workspace, "LOOKED_AT_MAX", 1)
    for name in "abc":
        (outside / name).write_text("open")
    async with opened("tools: {files: {deny: ['*.key']}}\n") as box:
        box.grant(str(outside))
        result = await box.exec(command=f"cat {outside}/a")
        assert f"refused {outside} (tools.files.deny)" in result.for_llm


async def test_refused_path_in_a_granted_directory_is_not_shown_with_it(box, outside):
    """What the owner refused stays refused, whatever lies around it is granted."""
    (outside / "secret").write_text("s3cret")
    box.grant(str(outside / "secret"), "deny")
    box.grant(str(outside))
    for arguments in (
        {"command": f"cat {outside}/*"},
        {"command": "cat *", "workdir": str(outside)},
    ):
        result = await box.exec(**arguments)
        assert "s3cret" not in result.for_llm
        assert f"granted {outside} and refused {outside}/secret" in result.for_llm
    assert not (await box.exec(command="true")).is_error


async def test_grant_once_of_writing_comes_before_one_of_reading(box, outside):
    box.grant(str(outside))
    box.grant(str(outside), "once", write=True)
    assert not (await box.exec(command=f"echo x > {outside}/a")).is_error
    assert (await box.exec(command=f"echo y > {outside}/a; cat {outside}/a")).for_llm.startswith(
        "x"
    )


async def test_link_to_what_is_granted_works_by_its_own_name(box, outside):
    (outside / "real").mkdir()
    (outside / "real" / "a").write_text("granted")
    (outside / "link").symlink_to(outside / "real")
    box.grant(str(outside / "link"))
    assert (await box.exec(command=f"cat {outside}/link/a")).for_llm == "granted"


async def test_grants_inside_each_other_do_not_get_in_each_others_way(box, outside):
    (outside / "sub").mkdir()
    (outside / "sub" / "a").write_text("granted")
    box.grant(str(outside), write=True)
    box.grant(str(outside / "sub"))
    assert (await box.exec(command=f"cat {outside}/sub/a")).for_llm == "granted"


async def test_file_may_be_granted_alone(box, outside):
    (outside / "a").write_text("granted")
    (outside / "b").write_text("s3cret")
    box.grant(str(outside / "a"))
    assert (await box.exec(command=f"cat {outside}/a; cat {outside}/b")).for_llm.startswith(
        "granted"
    )
    assert "s3cret" not in (await box.exec(command=f"cat {outside}/*")).for_llm


@contextlib.contextmanager
def swapping(path, *targets):
    """Put links to `targets` in the place of `path`, in turn and as fast as it goes."""
    stop = threading.Event()
    home = f"{path}.home"

    def swap():
        while not stop.is_set():
            for target in targets:
                os.rename(path, home)
                os.symlink(target, path)
                os.unlink(path)
                os.rename(home, path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.timeout(300)
async def test_directory_that_is_swapped_for_a_link_shows_nothing_else(box, outside):
    """Fault 3081 of PicoClaw, 200 times: the link that is followed was not the one approved."""
    (outside / "in").mkdir()
    (outside / "in" / "a").write_text("granted")
    (outside / "out").mkdir(mode=0o755)
    (outside / "out" / "a").write_text("s3cret")
    box.grant(str(outside / "in"))
    assert (await box.exec(command=f"cat {outside}/in/a")).for_llm == "granted"
    held = shown = 0
    with swapping(outside / "in", outside / "out"):
        for number in range(100):
            workdir = {"workdir": str(outside / "in")} if number % 2 else {}
            name = "a" if workdir else f"{outside}/in/a"
            result = await box.exec(command=f"cat {name}", **workdir)
            assert "s3cret" not in result.for_llm
            held += result.is_error
            shown += result.for_llm == "granted"
    assert held + shown == 100


@pytest.mark.timeout(300)
async def test_workdir_that_is_swapped_for_a_link_leads_nowhere(box, outside):
    """Fault 3081 of PicoClaw: the other hundred, in the workspace."""
    (outside / "a").write_text("s3cret")
    await box.exec(command="mkdir d && echo mine > d/a")
    with swapping(box.workspace() / "d", outside, "/etc", "/root"):
        for _ in range(100):
            result = await box.exec(command="cat a", workdir="d")
            assert "s3cret" not in result.for_llm
            assert result.is_error or result.for_llm == "mine"


async def test_another_directory_of_the_same_name_is_not_what_was_granted(box, outside):
    (outside / "in").mkdir()
    box.grant(str(outside / "in"))
    (outside / "in").rename(outside / "old")
    (outside / "in").mkdir()
    (outside / "in" / "a").write_text("s3cret")
    result = await box.exec(command=f"cat {outside}/in/a")
    assert "is no longer what it was: another is there" in result.for_llm


async def test_a_grant_of_what_is_gone_is_in_nobodys_way(box, outside):
    """A command that names it is told; any other runs, and the place can be granted anew."""
    for name in ("gone", "swapped"):
        (outside / name).mkdir()
        box.grant(str(outside / name))
        (outside / name).rmdir()
    (outside / "kept").mkdir()
    (outside / "swapped").mkdir()
    box.grant(str(outside / "later"))
    assert (await box.exec(command="echo fine")).for_llm == "fine"
    assert "is missing" in (await box.exec(command=f"ls {outside}/gone")).for_llm
    assert "was not there when" in (await box.exec(command=f"ls {outside}/later")).for_llm
    assert "ask for it again" in (await box.exec(command=f"ls {outside}/swapped")).for_llm
    box.grant(str(outside / "swapped"))
    (outside / "swapped" / "a").write_text("")
    assert (await box.exec(command=f"ls {outside}/swapped")).for_llm == "a"


@pytest.mark.parametrize("path", ["/", "/proc", "/dev"])
async def test_grant_of_the_sandboxs_own_places_is_refused(box, path):
    with contextlib.suppress(Exception):
        box.grant(path)
    result = await box.exec(command=f"ls {path}/sys/kernel")
    assert "core_pattern" not in result.for_llm


# Settings


async def test_without_a_sandbox_commands_run_and_every_result_says_so():
    """Contract, section 3: `sandbox: none` is typed by a person and marked on every result."""
    async with opened("sandbox: none\n") as box:
        result = await box.exec(command="echo x > a; pwd; echo end >&2", workdir="~")
        assert result.for_llm == f"{box.folder}/{ADA.user}/home\nSTDERR:\nend"
        assert result.sandbox == "none"
        session = await box.start("cat a; tty", workdir="/officer/user/home", pty=True)
        assert "/dev/pts/" in await box.shown(session, "/dev/pts/")


async def test_switched_off_is_refused():
    async with opened("tools: {exec: {enabled: false}}\n") as box:
        with pytest.raises(ToolUnavailableError, match="'exec' is disabled"):
            await box.exec(command="true")


async def test_no_sessions_may_be_had():
    async with opened("tools: {exec: {sessions: 0}}\n") as box:
        result = await box.exec(command="true", background=True)
        assert result.for_llm == "background commands are switched off (tools.exec.sessions: 0)"


async def test_owners_patterns_hold():
    config = "tools: {exec: {deny: ['^jq '], allow: ['^rm -rf build$', '.*jq.*']}}\n"
    async with opened(config) as box:
        assert "refused by the owner's rule '^jq '" in (await box.exec(command="jq .")).for_llm
        assert not (await box.exec(command="mkdir build; rm -rf build")).is_error
        assert "`rm -rf .`" in (await box.exec(command="rm -rf build; rm -rf .")).for_llm


async def test_network_is_the_configurations(plant):
    command = f"exec 3<>/dev/tcp/127.0.0.1/{plant['PORT']} && echo reached"
    async with opened() as box:
        result = await box.exec(command=command)
        assert "tools: {exec: {network: true}} in edged.yaml" in result.for_llm
    async with opened("tools: {exec: {network: true}}\n") as box:
        assert (await box.exec(command=command)).for_llm == "reached"


async def test_memory_is_the_configurations():
    async with opened("tools: {exec: {memory: 32M}}\n") as box:
        result = await box.exec(command="python3 -c 'x = b\"a\" * (200 << 20)'")
        assert result.is_error
        assert "tools: {exec: {memory: 64M}} in edged.yaml" in result.for_llm


async def test_level_and_permissions_are_shown_as_those_of_tools(box):
    await box.exec(command="true")
    found = box.services.describe(OWNER, "exec", None)
    assert found.sandbox == box.daemon.catalogue.runner.confines(Permissions()).level != ""
    assert (found.permissions.network, found.permissions.memory_max) == (False, 256 << 20)
    assert (found.category, found.config_key) == ("filesystem", "exec")


async def test_session_that_writes_without_end_is_read_slowly(box):
    """Who reads it does not, so the daemon need not either."""
    started = asyncio.get_running_loop().time()
    session = await box.start("yes")
    await box.exec(action="poll", sessionId=session, timeout=1)
    read = await box.exec(action="read", sessionId=session)
    took_s = asyncio.get_running_loop().time() - started
    seen = read.structured["dropped"] + (1 << 20)
    assert 1 << 20 < seen < 2 * OUTPUT_RATE * (took_s + 0.1)


async def test_keys_of_a_terminal_work_whoever_started_the_daemon(box):
    """POSIX.1-2017, XCU 2.11: what a shell starts in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        result = await box.exec(command=f'python3 -c "{code}"', pty=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.for_llm == "False"
