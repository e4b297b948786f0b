"""Calls of other tools from inside a tool, in each language."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from edged.errors import DeniedError
from edged.sandbox import calls


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


def _result(said: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], "is_error": is_error}


class Daemon:
    """Answers calls as the dispatcher would, and remembers them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.at_once = 0
        self.most = 0

    async def __call__(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((name, arguments))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        self.at_once -= 1
        if name == "forbidden":
            raise DeniedError("forbidden is not among the calls of this tool")
        return _result(arguments.get("text", "21.5 Cel"), is_error=name == "broken")


ONCE = {
    "python": """
from edged_tool import ToolError, call, text
def execute(c, p):
    try: return 'got ' + text(call(p['name'], action='read', text=p['text']))
    except ToolError as e: return f'{e.code}: {e}'
""",
    "typescript": """
import { ToolError, call, text } from 'edged';
export async function execute(id: string, p: any) {
  try { return 'got ' + text(await call(p.name, { action: 'read', text: p.text })); }
  catch (e) { if (!(e instanceof ToolError)) throw e; return `${e.code}: ${e.message}`; }
}
""",
    "bash": """
if said=$(edged-call "$INPUT_NAME" action=read text="$INPUT_TEXT" 2>&1); then echo "got $said"; else echo "failed: ${said#edged-call: }"; fi
""",
}
ODD = "é \"quoted\" 'single' \\back\nline\ttab $(id) \x07 end"


@pytest.mark.parametrize("language", ONCE)
async def test_a_tool_gets_the_result_of_another(workshop, language: str) -> None:
    daemon = Daemon()
    job = workshop.job(language, ONCE[language], calls=True)
    outcome = await workshop.pool.call(
        job, "1", {"name": "sensor", "text": ODD}, calls_handler=daemon
    )
    assert daemon.calls == [("sensor", {"action": "read", "text": ODD})]
    assert text(outcome) == "got " + ODD.replace("\x07", "\ufffd")


@pytest.mark.parametrize("language", ONCE)
async def test_a_failure_of_the_other_tool_is_an_error_to_handle(workshop, language: str) -> None:
    job = workshop.job(language, ONCE[language], calls=True)
    outcome = await workshop.pool.call(
        job, "1", {"name": "broken", "text": "no such sensor"}, calls_handler=Daemon()
    )
    assert text(outcome) == "failed: no such sensor"


@pytest.mark.parametrize("language", ONCE)
async def test_a_call_that_is_not_declared_is_refused(workshop, language: str) -> None:
    job = workshop.job(language, ONCE[language], calls=True)
    outcome = await workshop.pool.call(
        job, "1", {"name": "forbidden", "text": "x"}, calls_handler=Daemon()
    )
    code = "failed" if language == "bash" else "denied"
    assert text(outcome) == f"{code}: forbidden is not among the calls of this tool"


@pytest.mark.parametrize("language", ONCE)
async def test_without_calls_the_tool_is_told_what_to_declare(workshop, language: str) -> None:
    job = workshop.job(language, ONCE[language])
    outcome = await workshop.pool.call(
        job, "1", {"name": "sensor", "text": "x"}, calls_handler=Daemon()
    )
    assert "this tool may not call others: add `calls: [sensor]` to TOOL.md" in text(outcome)


MANY = {
    "python": """
import asyncio
from edged_tool import acall, text
async def execute(c, p):
    results = await asyncio.gather(*(acall('sensor', text=str(n)) for n in range(20)))
    return ' '.join(text(r) for r in results)
""",
    "typescript": """
import { call, text } from 'edged';
export async function execute() {
  const results = await Promise.all([...Array(20).keys()].map((n) => call('sensor', { text: String(n) })));
  return results.map(text).join(' ');
}
""",
    "bash": """
for n in {0..19}; do edged-call sensor text="$n" > "/tmp/$n" & done; wait
for n in {0..19}; do said+="$(cat "/tmp/$n") "; done; echo "${said% }"
""",
}


@pytest.mark.parametrize("language", MANY)
async def test_calls_at_once_get_each_its_own_answer(workshop, language: str) -> None:
    """Threads, promises and processes of a tool share one descriptor."""
    daemon = Daemon()
    job = workshop.job(language, MANY[language], calls=True)
    async with asyncio.timeout(30):
        outcome = await workshop.pool.call(job, "1", {}, calls_handler=daemon)
    assert text(outcome) == " ".join(map(str, range(20)))
    assert daemon.most <= 4


IN_TURN = {
    "python": """
from edged_tool import call, text
def execute(c, p): return ' '.join(text(call('sensor', text=str(n))) for n in range(20))
""",
    "typescript": """
import { call, text } from 'edged';
export async function execute() {
  const said = [];
  for (let n = 0; n < 20; n++) said.push(text(await call('sensor', { text: String(n) })));
  return said.join(' ');
}
""",
    "bash": """
for n in {0..19}; do said+="$(edged-call sensor text="$n") "; done; echo "${said% }"
""",
}


@pytest.mark.parametrize("language", IN_TURN)
async def test_calls_one_after_the_other_are_answered(workshop, language: str) -> None:
    job = workshop.job(language, IN_TURN[language], calls=True)
    async with asyncio.timeout(30):
        outcome = await workshop.pool.call(job, "1", {}, calls_handler=Daemon())
    assert text(outcome) == " ".join(map(str, range(20)))


async def test_programs_of_a_python_tool_can_call_too(workshop) -> None:
    source = """
import os, subprocess
def execute(c, p):
    fd = int(os.environ['EDGED_CALLS_FD'])
    return subprocess.run(['edged-call', 'sensor', '{"text": "by a child"}'], pass_fds=[fd], capture_output=True, text=True, env={**os.environ, 'PATH': os.environ['PATH'] + ':/edged/bin'}).stdout
"""
    job = workshop.job("python", source, calls=True)
    assert text(await workshop.pool.call(job, "1", {}, calls_handler=Daemon())) == "by a child\n"


KILLED = """
for round in {{1..8}}; do
  for n in {{1..6}}; do
    edged-call sensor text="{long}" > /dev/null 2>&1 & killed[n]=$!
  done
  for ((i = 0; i < round * 4000; i++)); do :; done
  for n in {{1..6}}; do kill -9 "${{killed[n]}}"; done
  for n in {{1..4}}; do edged-call sensor text="$round.$n" & done
  wait
done 2> /dev/null | sort -n
"""


async def test_callers_that_are_killed_leave_the_others_their_answers(workshop) -> None:
    """Wherever it hits them: with the lock, before the answer or in the midst of it."""
    job = workshop.job("bash", KILLED.format(long="x" * 60_000), calls=True)
    async with asyncio.timeout(60):
        outcome = await workshop.pool.call(job, "1", {}, calls_handler=Daemon())
    expected = sorted((f"{r}.{n}" for r in range(1, 9) for n in range(1, 5)), key=float)
    assert text(outcome).split() == expected


async def test_big_calls_and_answers_pass(workshop) -> None:
    source = "from edged_tool import call\ndef execute(c, p): return str(len(call('echo', text='x' * 3000000)['content'][0]['text']))"
    job = workshop.job("python", source, calls=True)
    assert text(await workshop.pool.call(job, "1", {}, calls_handler=Daemon())) == "3000000"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("no json", "protocol_remote"),
        ("[" * 100_000, "protocol_remote"),
        ('{"id": 1, "name": "x", "arguments": {"a": ' + "[" * 100_000, "protocol_remote"),
        ('{"id": 1}', "protocol_remote"),
        ('{"id": 1, "name": "sensor", "arguments": []}', "protocol_remote"),
        (r'{"id": "1 ok 0\n2", "name": "sensor", "plain": true}', "protocol_remote"),
        (r'{"id": "1\n", "name": "sensor", "plain": true}', "protocol_remote"),
        ('{"id": "", "name": "sensor", "plain": true}', "protocol_remote"),
    ],
)
async def test_a_malformed_request_is_answered_and_harms_nothing(
    workshop, line: str, answer: str
) -> None:
    source = f"import os\ndef execute(c, p):\n  fd = int(os.environ['EDGED_CALLS_FD'])\n  os.write(fd, {line!r}.encode() + b'\\n')\n  return os.read(fd, 9999).decode()"
    job = workshop.job("python", source, calls=True)
    outcome = await workshop.pool.call(job, "1", {}, calls_handler=Daemon())
    assert answer in text(outcome)


async def test_a_call_of_too_many_values_is_refused_before_it_is_decoded(workshop) -> None:
    """16 MiB of brackets would take 400 MiB of the daemon, outside the tool's limits."""
    source = """
import os
def execute(c, p):
    fd = int(os.environ['EDGED_CALLS_FD'])
    line = b'{"id": 1, "name": "x", "arguments": {"a": [' + b'[],' * 300000 + b'0]}}\\n'
    while line: line = line[os.write(fd, line):]
    return os.read(fd, 9999).decode()
"""
    job = workshop.job("python", source, calls=True)
    outcome = await workshop.pool.call(job, "1", {}, calls_handler=Daemon())
    assert "more than 200,000 values" in text(outcome)


async def test_a_tool_that_reads_no_answers_is_not_read_on() -> None:
    """Answers that nobody reads would fill the daemon's memory."""
    loop = asyncio.get_running_loop()
    served = 0

    async def handler(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        nonlocal served
        served += 1
        return _result("x" * (6 << 20))

    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        server = asyncio.create_task(calls.serve(ours, handler))
        await loop.sock_sendall(theirs, b'{"id": 1, "name": "x"}\n' * 30)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert 1 <= served <= calls.AT_ONCE + 1 + calls.UNREAD_MAX // (6 << 20)
        answers = 0
        async with asyncio.timeout(60):
            while answers < 30:
                answers += (await loop.sock_recv(theirs, 1 << 20)).count(b"\n")
        assert served == 30
        theirs.close()
        await server


async def test_an_answer_that_is_too_big_is_an_error() -> None:
    async def handler(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "deep":
            raise RecursionError("maximum recursion depth exceeded")
        return _result("x" * calls.ANSWER_MAX)

    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        server = asyncio.create_task(calls.serve(ours, handler))
        await loop.sock_sendall(theirs, b'{"id": 1, "name": "big"}\n')
        assert b"16 MiB, more than the limit of 16 MiB" in await loop.sock_recv(theirs, 9999)
        await loop.sock_sendall(theirs, b'{"id": 1, "name": "deep"}\n')
        assert b"maximum recursion depth exceeded" in await loop.sock_recv(theirs, 9999)
        theirs.close()
        await server


async def test_calls_that_are_under_way_end_with_the_tool(workshop) -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def never(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        started.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    source = "import os\ndef execute(c, p):\n  os.write(int(os.environ['EDGED_CALLS_FD']), b'{\"id\": 1, \"name\": \"x\"}\\n')\n  while not os.path.exists('/officer/data/go'): pass\n  return 'done'"
    job = workshop.job("python", source, calls=True)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        call = tasks.create_task(workshop.pool.call(job, "1", {}, calls_handler=never))
        await started.wait()
        open(workshop.data + "/go", "w").close()
        assert text(await call) == "done"
        await ended.wait()


async def test_the_only_other_descriptor_is_that_of_the_calls(workshop) -> None:
    """Issue 2, part 5: known to the leak check."""
    source = "import os, stat\ndef execute(c, p):\n  fds = [f for f in range(4096) if os.path.exists(f'/proc/self/fd/{f}')]\n  return str(fds == [0, 1, 2, int(os.environ['EDGED_CALLS_FD'])])"
    job = workshop.job("python", source, calls=True)
    assert text(await workshop.pool.call(job, "1", {}, calls_handler=Daemon())) == "True"


async def test_tools_that_call_tools_never_wait_for_each_other(workshop) -> None:
    """Each depth has its own places: as many outer calls as there are places, each with an inner one."""
    inner = workshop.job("python", "def execute(c, p): return 'inner'")
    outer = workshop.job(
        "python",
        "from edged_tool import call, text\ndef execute(c, p): return 'outer ' + text(call('inner'))",
        calls=True,
    )

    async def handler(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return (await workshop.pool.call(inner, "2", arguments, depth=1)).result

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        calls = [
            tasks.create_task(workshop.pool.call(outer, "1", {}, calls_handler=handler))
            for _ in range(20)
        ]
    assert {text(call.result()) for call in calls} == {"outer inner"}
