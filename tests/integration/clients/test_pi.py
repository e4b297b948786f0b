"""The coding agent pi, from npm, with our extension: the specification's own host.

Source: the documentation in the package `@mariozechner/pi-coding-agent`, docs/extensions.md
and docs/models.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from edged.cli.mcp import configuration
from edged.testing import running
from tests import npm

ROOT = Path(__file__).parents[3]
PI = "@mariozechner/pi-coding-agent/dist/cli.js"
BOUND_S = 120.0


class Model:
    """A scripted model that speaks chat completions: each answer is a call or a text."""

    def __init__(self, *script) -> None:
        self.script = list(script)
        self.asked = []
        self.url = ""

    async def serve(self, request):
        self.asked.append(await request.json())
        step = self.script.pop(0)
        if callable(step):
            step = await step()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        if isinstance(step, str):
            delta, finish = {"role": "assistant", "content": step}, "stop"
        else:
            name, arguments = step
            call = {"name": name, "arguments": json.dumps(arguments)}
            one = {"index": 0, "id": "call_1", "type": "function", "function": call}
            delta, finish = {"role": "assistant", "tool_calls": [one]}, "tool_calls"
        for part, reason in ((delta, None), ({}, finish)):
            choice = {"index": 0, "delta": part, "finish_reason": reason}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            await answer.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
        await answer.write(b"data: [DONE]\n\n")
        return answer

    def told(self, turn):
        """What the tool gave, as the model was told it."""
        content = next(m["content"] for m in self.asked[turn]["messages"] if m["role"] == "tool")
        return content if isinstance(content, str) else "".join(p["text"] for p in content)


@asynccontextmanager
async def scripted(*script):
    model = Model(*script)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    model.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield model
    finally:
        await runner.cleanup()


@pytest.fixture
def folder():
    """One that the tools' account may enter."""
    with tempfile.TemporaryDirectory(prefix="edged-pi-", dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        yield made


async def start_pi(home: Path, model: Model, socket: str, *words: str, **env: str):
    """Starts pi as a person would with the extension installed."""
    own = [sys.executable, "-m", "edged", "mcp", "--socket", socket]
    agent = home / ".pi/agent"
    (agent / "extensions").mkdir(parents=True)
    (agent / "extensions/edged.ts").write_text(configuration("pi", own))
    provider = {
        "baseUrl": model.url,
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": "m"}],
    }
    (agent / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
    env = {
        "HOME": str(home),
        "PATH": f"{Path(npm.NODE).parent}:{os.environ['PATH']}",
        "PI_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
        **env,
    }
    given = ["--provider", "scripted", "--model", "m", "--no-session", *words]
    return await asyncio.create_subprocess_exec(
        *(npm.NODE, str(npm.modules("pi") / PI), *given),
        cwd=home,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process) -> tuple[str, str]:
    """What it printed, once its input ended."""
    process.stdin.close()
    try:
        out, err = await asyncio.wait_for(process.communicate(), BOUND_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode(), err.decode()


async def ask_pi(
    home: Path, model: Model, socket: str, *prompts: str, **env: str
) -> tuple[str, str]:
    """Runs pi once; what it printed."""
    return await ended(await start_pi(home, model, socket, "-p", *prompts, **env))


async def test_pi_calls_a_tool_of_the_board(folder, tmp_path):
    """The model sees the board's tools, calls a sensor of it, and is told the value."""
    call = ("sensor", {"sensor": "greenhouse", "channel": "temperature"})
    async with running(data=folder) as it, scripted(call, "It is warm.") as model:
        out, err = await ask_pi(tmp_path, model, it.socket, "How warm is the greenhouse?")
    assert out.strip() == "It is warm.", err
    names = {tool["function"]["name"] for tool in model.asked[0]["tools"]}
    assert {"sensor", "gpio", "i2c", "tool_call"} <= names
    assert "°C" in model.told(1)


async def test_a_tool_of_the_board_does_not_stand_in_for_one_of_pis(folder, tmp_path):
    """A board's tool `bash` is `edged_bash` there; pi's own is on the person's machine."""
    write = Path(folder, "local/tools/bash")
    write.mkdir(parents=True)
    (write / "TOOL.md").write_text(
        "---\nname: bash\nlabel: B\ndescription: The board\nlanguage: bash\n---\n"
    )
    (write / "index.sh").write_text("echo on the board\n")
    async with (
        running(data=folder) as it,
        scripted(
            ("edged_bash", {}), ("bash", {"command": "echo on this machine"}), "Both."
        ) as model,
    ):
        out, err = await ask_pi(tmp_path, model, it.socket, "x")
    assert out.strip() == "Both.", err
    told = [m["content"] for m in model.asked[2]["messages"] if m["role"] == "tool"]
    assert ["on the board" in json.dumps(told[0]), "this machine" in json.dumps(told[1])] == [
        True
    ] * 2


async def test_a_failure_of_a_tool_is_told_to_the_model(folder, tmp_path):
    call = ("sensor", {"sensor": "nowhere"})
    async with running(data=folder) as it, scripted(call, "There is none.") as model:
        out, err = await ask_pi(tmp_path, model, it.socket, "x")
    assert out.strip() == "There is none.", err
    assert "nowhere" in model.told(1)


async def test_a_tool_that_is_found_can_be_called(folder, tmp_path):
    """At once by tool_call; pi shows its model new tools with the next prompt."""
    config = "tools: {system_info: {hidden: true}}"
    find = ("tool_search_tool_bm25", {"query": "system info memory"})
    call = ("tool_call", {"name": "system_info", "arguments": {}})
    async with (
        running(data=folder, config=config) as it,
        scripted(find, call, "Done.", ("system_info", {}), "Again.") as model,
    ):
        out, err = await ask_pi(tmp_path, model, it.socket, "x", "y")
    assert out.strip() == "Again.", err
    tools = [{tool["function"]["name"] for tool in one["tools"]} for one in model.asked]
    assert "system_info" not in tools[0]
    assert "system_info" in tools[3]
    told = [m["content"] for m in model.asked[4]["messages"] if m["role"] == "tool"]
    assert "memory" in json.dumps(told[1])
    assert "memory" in json.dumps(told[2])


CHANGING = """
import json, sys

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tools(*names):
    schema = {"type": "object"}
    return {"tools": [{"name": name, "description": name, "inputSchema": schema} for name in names]}

lists, held = 0, None
for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message["method"]
    if method == "initialize":
        say({"id": number, "result": {"protocolVersion": "2025-11-25", "capabilities": {}}})
    elif method == "tools/list":
        lists += 1
        if lists == 1:
            say({"id": number, "result": tools("tool_search_tool_x")})
            say({"method": "notifications/tools/list_changed"})
        elif lists == 2:
            held = number
        else:
            say({"id": number, "result": tools("tool_search_tool_x", "found")})
    elif method == "tools/call":
        say({"id": number, "result": {"content": [{"type": "text", "text": "yes"}]}})
        if held is not None:
            say({"id": held, "result": tools("tool_search_tool_x")})
            held = None
"""


async def test_a_list_that_was_asked_for_before_a_search_hides_nothing(folder, tmp_path):
    """The server answers it after the search, as a busy board may."""
    server = Path(folder) / "changing.py"
    server.write_text(CHANGING)
    find = ("tool_search_tool_x", {})
    async with scripted(find, "Done.", ("found", {}), "Again.") as model:
        out, err = await ask_pi(
            tmp_path,
            model,
            f"{folder}/none.sock",
            "x",
            "y",
            EDGED_MCP=f"{sys.executable} {server}",
        )
    assert out.strip() == "Again.", err
    assert "found" in {tool["function"]["name"] for tool in model.asked[2]["tools"]}


async def test_without_a_daemon_pi_works_and_says_why_there_are_no_tools(folder, tmp_path):
    async with scripted("Hello.") as model:
        out, err = await ask_pi(tmp_path, model, f"{folder}/none.sock", "x")
    assert out.strip() == "Hello."
    assert f"{folder}/none.sock" in err


async def test_another_command_is_started_where_the_environment_names_one(folder, tmp_path):
    """README, "Use it from an agent": `EDGED_MCP`."""
    other = f"{sys.executable} -m edged mcp --socket {folder}/other.sock"
    async with scripted("Hello.") as model:
        _, err = await ask_pi(tmp_path, model, f"{folder}/none.sock", "x", EDGED_MCP=other)
    assert f"{folder}/other.sock" in err


async def test_what_a_person_stops_in_pi_stops_on_the_board(folder, tmp_path):
    """docs/rpc.md: `abort`; the extension's signal cancels the call."""
    call = ("exec", {"command": "sleep 100"})
    async with running(data=folder) as it, scripted(call, "Stopped.") as model:
        events: asyncio.Queue = asyncio.Queue()
        it.daemon.services.events.subscribe(events.put_nowait)

        async def until(kind):
            async with asyncio.timeout(BOUND_S):
                while (event := await events.get()).kind != kind:
                    pass
            return event.data

        process = await start_pi(tmp_path, model, it.socket, "--mode", "rpc")
        try:
            process.stdin.write(b'{"type": "prompt", "message": "Wait."}\n')
            assert (await until("call.start"))["tool"] == "exec"
            process.stdin.write(b'{"type": "abort"}\n')
            assert (await until("call.end"))["outcome"] == "cancelled"
        finally:
            await ended(process)
