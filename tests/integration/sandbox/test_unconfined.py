"""`sandbox: none`: the same tools as plain processes, for where no sandbox can be had."""

from __future__ import annotations

import asyncio
import glob
import os
import uuid

import pytest

from edged.sandbox.profile import Bind, Limits, Profile
from edged.sandbox.unconfined import host_path, host_value


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


@pytest.fixture
async def bare(make_workshop):
    async with make_workshop(warm_memory=256 << 20, confined=False) as made:
        yield made


TOOLS = {
    "python": "import os\nfrom edged_tool import call, text\ndef execute(c, p): return f\"{p['x']} {os.getcwd()} {os.environ['HOME']} {'SECRET' in os.environ} \" + text(call('inner'))",
    "bash": 'echo "$INPUT_X $PWD $HOME $([[ $SECRET ]] && echo True || echo False) $(edged-call inner)"',
    "typescript": "import { call, text } from 'edged';\nexport async function execute(id: string, p: any) { return `${p.x} ${process.cwd()} ${process.env.HOME} ${'SECRET' in process.env ? 'True' : 'False'} ` + text(await call('inner')); }",
}


@pytest.mark.parametrize("language", TOOLS)
async def test_tools_work_with_the_hosts_paths_and_their_own_variables(
    bare, monkeypatch, language: str
) -> None:
    monkeypatch.setenv("SECRET", "1")
    job = bare.job(language, TOOLS[language], env={"HOME": "/officer/data/home"}, calls=True)

    async def inner(name: str, arguments: dict) -> dict:
        return {"content": [{"type": "text", "text": name}]}

    for warm in (False, True):
        outcome = await bare.pool.call(job, "1", {"x": "é"}, calls_handler=inner)
        assert text(outcome) == f"é {bare.data} {bare.data}/home False inner"
        assert outcome.warm is warm
        await bare.warm(job)


async def test_nothing_is_left_of_a_call_in_the_hosts_tmp(bare) -> None:
    """Not even of one that was killed while it called another tool."""

    async def inner(name: str, arguments: dict) -> dict:
        kill = f"kill -9 {arguments['caller']}"
        assert await (await asyncio.create_subprocess_shell(kill)).wait() == 0
        return {"content": [{"type": "text", "text": name}]}

    source = "edged-call inner caller=$$; ls $EDGED_CALLS_LOCK*; printf end"
    job = bare.job("bash", f"bash -c 'echo $EDGED_CALLS_LOCK; {source}'", calls=True)
    lock = text(await bare.pool.call(job, "1", {}, calls_handler=inner)).split()[0]
    assert lock.startswith("/tmp/.edged-calls-")
    await bare.until(lambda: not glob.glob(lock + "*"))


async def test_a_tool_does_not_run_as_root(bare, account) -> None:
    outcome = await bare.call("bash", "id -u")
    assert text(outcome) == str(account.uid)


async def test_limits_and_their_words_are_the_same(bare) -> None:
    outcome = await bare.call("bash", "echo before; sleep 60", limits=Limits(wall_s=1))
    assert text(outcome).splitlines() == [
        "before",
        "stopped after 1 s, its time limit; `timeout: 2` in TOOL.md allows more",
    ]
    crashed = await bare.call("python", "import os\ndef execute(c, p): os.kill(os.getpid(), 11)")
    assert (crashed.reason, crashed.signal) == ("crashed", 11)


async def test_what_a_tool_started_ends_with_it(bare) -> None:
    mark = f"mark-{uuid.uuid4()}"
    async with asyncio.timeout(10):
        await bare.call("bash", "sleep 600 & echo done", env={"MARK": mark})

    def alive() -> bool:
        for name in filter(str.isdecimal, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read():
                        return True
            except OSError:
                continue
        return False

    await bare.until(lambda: not alive())


async def test_a_cancel_is_told(bare) -> None:
    source = "def execute(c, p, s, u):\n  u('there')\n  s.wait()\n  open('told', 'w').close()"
    there = asyncio.Event()
    task = asyncio.create_task(
        bare.pool.call(bare.job("python", source), "1", {}, lambda _: there.set())
    )
    await there.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(bare.data) == ["told"]


async def test_a_missing_directory_is_named(bare) -> None:
    job = bare.job("bash", "echo x")
    os.rmdir(bare.data)
    outcome = await bare.pool.call(job, "1", {})
    assert f"{bare.data} is missing" in text(outcome)
    os.mkdir(bare.data)


PROFILE = Profile(
    binds=(
        Bind("/srv/tools", "/officer/tools"),
        Bind("/srv/ada/home", "/officer/user/home", write=True),
        Bind("/srv/ada/workspace", "/officer/user/workspace", write=True),
    ),
    links=(("/workspace", "/officer/user/workspace"),),
)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/officer/tools/x/index.py", "/srv/tools/x/index.py"),
        ("/officer/toolshed", "/officer/toolshed"),
        ("/officer/user/home", "/srv/ada/home"),
        ("/officer/user", "/srv/ada"),
        ("/workspace/a", "/srv/ada/workspace/a"),
        ("/usr/bin/python3", "/usr/bin/python3"),
        ("-u", "-u"),
    ],
)
def test_paths_are_those_of_the_host(inside: str, outside: str) -> None:
    assert host_path(inside, PROFILE) == outside


def test_a_list_of_paths_is_translated_one_by_one() -> None:
    assert host_value("/officer/tools:/officer/user/home", PROFILE) == "/srv/tools:/srv/ada/home"
    assert host_value('{"url": "http://x"}', PROFILE) == '{"url": "http://x"}'
