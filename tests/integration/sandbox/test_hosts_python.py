"""The host of Python tools, in real sandboxes."""

from __future__ import annotations

import base64
import os

import pytest

HELLO = "def execute(tool_call_id, params, signal=None, on_update=None):\n    return 'Hello, ' + params['name'] + '!'\n"


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


@pytest.mark.parametrize(
    "source",
    [
        HELLO,
        "def execute(call, params): return {'content': [{'type': 'text', 'text': f\"Hello, {params['name']}!\"}]}",
        "async def execute(call, params): return f\"Hello, {params['name']}!\"",
        "def execute(call, params, signal): return f\"Hello, {params['name']}!\"",
        "def execute(*args): return f\"Hello, {args[1]['name']}!\"",
        "import functools\ndef f(x, call, params): return x + params['name'] + '!'\nexecute = functools.partial(f, 'Hello, ')",
        "class T:\n  def run(self, call, params): return 'Hello, ' + params['name'] + '!'\nexecute = T().run",
    ],
)
async def test_every_way_to_write_execute_works(workshop, source: str) -> None:
    """Contract 10: plain or async; called with as many arguments as it accepts."""
    outcome = await workshop.call("python", source, {"name": "Ada"})
    assert (outcome.reason, text(outcome), outcome.result["isError"]) == (
        "ok",
        "Hello, Ada!",
        False,
    )
    assert outcome.message == ""


@pytest.mark.parametrize("flag", ["isError", "is_error"])
async def test_a_returned_error_flag_is_a_failure(workshop, flag: str) -> None:
    """Contract 7: one flag."""
    source = f"def execute(c, p): return {{'content': [{{'type': 'text', 'text': 'no'}}], {flag!r}: True}}"
    outcome = await workshop.call("python", source)
    assert outcome.result == {"content": [{"type": "text", "text": "no"}], "isError": True}


async def test_an_exception_is_a_failure_with_the_tools_own_lines(workshop) -> None:
    """Contract 7: a thrown exception is the same failure; the host's frames are not shown."""
    source = "def deep(n):\n    return 1 / n\n\ndef execute(c, p):\n    return deep(0)\n"
    outcome = await workshop.call("python", source)
    assert outcome.reason == "failed"
    assert outcome.result["isError"]
    assert text(outcome).splitlines() == [
        "ZeroDivisionError: division by zero",
        "  at /officer/tools/tool_1/index.py:5 in execute: return deep(0)",
        "  at /officer/tools/tool_1/index.py:2 in deep: return 1 / n",
    ]


async def test_the_cause_of_an_exception_is_named(workshop) -> None:
    source = "def execute(c, p):\n  try: {}['x']\n  except KeyError as e: raise ValueError('bad file') from e\n"
    outcome = await workshop.call("python", source)
    assert "ValueError: bad file" in text(outcome)
    assert "caused by KeyError: 'x'" in text(outcome)


async def test_a_syntax_error_is_told_with_its_place(workshop) -> None:
    outcome = await workshop.call("python", "def execute(c, p):\n    return (\n")
    assert 'File "/officer/tools/tool_1/index.py", line 2' in text(outcome)
    assert "SyntaxError" in text(outcome)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1", "index.py has no function `execute`: write `def execute("),
        ("class MyTool:\n  def run(self): pass", "A class (`MyTool`) is not called"),
        ("def main(): pass\nif __name__ == '__main__': main()", "do not run in a tool"),
        ("def execute(params): return 'x'", "must accept (tool_call_id, params)"),
        ("def execute(c, p): print('result')", "returned nothing: return text or"),
        ("def execute(c, p): return [1]", "returned a list: return text or"),
        ("def execute(c, p): return 3", "returned a number: return text or"),
        ("def execute(c, p): return {'text': 'x'}", "has no list `content`"),
        ("def execute(c, p): return {'content': ['x']}", "content[0] is not a block"),
        (
            "def execute(c, p): return {'content': [{'type': 'text'}]}",
            "content[0] is a text block without",
        ),
        (
            "def execute(c, p): return {'content': [{'type': 'text', 'text': b'x'}]}",
            "the result['content'][0]['text'] is of type bytes",
        ),
        (
            "def execute(c, p): return {'content': [], 'x': float('nan')}",
            "the result['x'] is nan, which JSON cannot hold",
        ),
        (
            "def execute(c, p): return {'content': [], 'x': {1, 2}}",
            "the result['x'] is of type set",
        ),
        ("def execute(c, p): return {'content': [], (1, 2): 3}", "has a key of type tuple"),
        (
            "def execute(c, p):\n  a = []\n  a.append(a)\n  return {'content': a}",
            "contains itself",
        ),
        ("import sys\ndef execute(c, p): sys.exit(3)", "ended without a result (exit status 3)"),
        ("import sys\ndef execute(c, p): sys.exit('why')", "(exit status 1): why"),
        ("import os\ndef execute(c, p): os._exit(4)", "ended with exit status 4"),
        (
            "def execute(c, p): return 'x' * (17 << 20)",
            "more than the limit of 16 MiB: save it to a file",
        ),
        (
            "import missing_thing\ndef execute(c, p): pass",
            "ModuleNotFoundError: No module named 'missing_thing'",
        ),
    ],
)
async def test_every_common_mistake_says_what_to_write(workshop, source: str, said: str) -> None:
    """The specification's common mistakes, as a Python tool makes them."""
    outcome = await workshop.call("python", source)
    assert outcome.result["isError"]
    assert said in text(outcome)
    assert said in outcome.message


async def test_what_was_printed_is_shown_only_with_a_failure(workshop) -> None:
    """The specification: what a tool prints is never seen by the agent."""
    good = await workshop.call(
        "python", "def execute(c, p):\n  print('secret state')\n  return 'fine'"
    )
    assert "secret state" not in text(good)
    assert good.stderr == "secret state\n"
    bad = await workshop.call("python", "def execute(c, p):\n  print('result: 42')")
    assert text(bad).endswith("It wrote:\nresult: 42")


async def test_output_of_child_processes_never_breaks_the_messages(workshop) -> None:
    """pipe(7): writes of at most PIPE_BUF bytes are atomic."""
    source = """
import subprocess
def execute(c, p, signal, on_update):
    noise = subprocess.Popen(['sh', '-c', 'while :; do echo noise-noise-noise; done'])
    for n in range(50):
        on_update(f'{n} ' + 'x' * 10000)
    noise.kill()
    return 'y' * 1000000
"""
    seen: list[str] = []
    job = workshop.job("python", source)
    outcome = await workshop.pool.call(
        job, "1", {}, lambda content: seen.append(content[0]["text"])
    )
    assert text(outcome) == "y" * 1_000_000
    assert seen == [f"{n} " + "x" * 10000 for n in range(50)]
    assert "noise-noise-noise\n" in outcome.stdout


async def test_a_child_that_makes_the_pipe_non_blocking_loses_nothing(workshop) -> None:
    """O_NONBLOCK belongs to the open file, which a child shares (open(2))."""
    source = "import os\ndef execute(c, p):\n  os.set_blocking(1, False)\n  return 'z' * 3000000"
    outcome = await workshop.call("python", source)
    assert len(text(outcome)) == 3_000_000


async def test_updates_come_in_order_before_the_result(workshop) -> None:
    """Contract 7: start, updates, one end; what a tool passes goes out unchanged."""
    source = """
def execute(c, p, signal, on_update):
    on_update('one')
    on_update({'content': [{'type': 'text', 'text': 'two'}]})
    return 'three'
"""
    seen: list = []
    outcome = await workshop.pool.call(workshop.job("python", source), "1", {}, seen.append)
    assert [content[0]["text"] for content in seen] == ["one", "two"]
    assert text(outcome) == "three"


async def test_the_signal_tells_of_a_cancel(workshop) -> None:
    """Contract 10: on cancel `signal` is aborted, and 0.5 s later the tree is killed."""
    import asyncio

    source = """
import os
def execute(c, p, signal, on_update):
    signal.add_listener(lambda: open('/officer/data/listener', 'w').close())
    on_update('waiting')
    assert signal.wait(20)
    while not os.path.exists('/officer/data/listener'): pass
    open('/officer/data/aborted', 'w').write(str(signal.aborted))
"""
    await _cancel_when_updated(workshop, workshop.job("python", source))
    assert sorted(os.listdir(workshop.data)) == ["aborted", "listener"]
    assert asyncio.current_task().cancelling() == 0


async def test_the_signal_wakes_an_async_tool(workshop) -> None:
    source = """
import asyncio
async def execute(c, p, signal, on_update):
    told = asyncio.Event()
    signal.add_listener(told.set)
    on_update('waiting')
    await told.wait()
    open('/officer/data/aborted', 'w').close()
"""
    await _cancel_when_updated(workshop, workshop.job("python", source))
    assert os.listdir(workshop.data) == ["aborted"]


async def _cancel_when_updated(workshop, job) -> None:
    import asyncio

    waiting = asyncio.Event()
    task = asyncio.create_task(workshop.pool.call(job, "1", {}, lambda _: waiting.set()))
    async with asyncio.timeout(20):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancelled_tool_that_does_not_listen_is_killed(workshop) -> None:
    import asyncio

    source = (
        "import signal\ndef execute(c, p, s, u):\n  u('waiting')\n  while True: signal.pause()"
    )
    async with asyncio.timeout(10):
        await _cancel_when_updated(workshop, workshop.job("python", source))


async def test_helper_files_beside_the_entry_can_be_imported_and_run(workshop) -> None:
    """The specification: additional files are allowed."""
    source = "import os, helper, subprocess, sys\ndef execute(c, p): return helper.NAME + subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), 'bin', 'x.py')], capture_output=True, text=True).stdout"
    outcome = await workshop.call(
        "python", source, files={"helper.py": "NAME = 'one '", "bin/x.py": "print('two', end='')"}
    )
    assert text(outcome) == "one two"


async def test_big_and_odd_parameters_arrive(workshop) -> None:
    """No value passes through an argument or a variable (execve(2): 128 KiB)."""
    value = "x'\"\n$(id)é\0\U0001f600" * 100_000
    source = "def execute(c, p):\n  import hashlib\n  return hashlib.sha256(p['v'].encode()).hexdigest()"
    import hashlib

    outcome = await workshop.call("python", source, {"v": value})
    assert text(outcome) == hashlib.sha256(value.encode()).hexdigest()


async def test_standard_input_is_empty(workshop) -> None:
    source = "import sys, subprocess\ndef execute(c, p): return repr((sys.stdin.read(), subprocess.run(['cat'], capture_output=True).stdout))"
    assert text(await workshop.call("python", source)) == "('', b'')"


async def test_files_that_were_left_open_are_written(workshop) -> None:
    """The process ends by _exit(2); a normal end would have flushed them."""
    source = "LOG = open('/officer/data/log', 'w')\ndef execute(c, p):\n  LOG.write('kept')\n  import atexit\n  atexit.register(lambda: open('/officer/data/exit', 'w').close())\n  return 'done'"
    await workshop.call("python", source)
    with open(os.path.join(workshop.data, "log")) as file:
        assert file.read() == "kept"
    assert "exit" in os.listdir(workshop.data)


async def test_an_image_is_returned_as_it_is(workshop) -> None:
    data = base64.b64encode(bytes(range(256)) * 4000).decode()
    source = "import base64\ndef execute(c, p): return {'content': [{'type': 'image', 'mimeType': 'image/png', 'data': base64.b64encode(bytes(range(256)) * 4000).decode()}]}"
    outcome = await workshop.call("python", source)
    assert outcome.result["content"] == [{"type": "image", "mimeType": "image/png", "data": data}]


async def test_control_characters_in_a_result_are_made_harmless(workshop) -> None:
    outcome = await workshop.call(
        "python", "def execute(c, p): return 'a\\x1b[31m\\x00b\\r\\nc\\td'"
    )
    assert text(outcome) == "a\ufffd[31m\ufffdb\nc\td"


async def test_only_the_three_standard_descriptors_are_open(workshop) -> None:
    source = "import os\ndef execute(c, p):\n  fds = os.listdir('/proc/self/fd')\n  return ' '.join(f for f in fds if os.path.exists('/proc/self/fd/' + f))"
    assert text(await workshop.call("python", source)).split() == ["0", "1", "2"]


async def test_a_path_like_dev_stderr_can_be_opened(workshop) -> None:
    """The pipes belong to the tools' account: opening them anew asks for their mode."""
    source = "def execute(c, p):\n  open('/dev/stderr', 'w').write('here')\n  return 'ok'"
    outcome = await workshop.call("python", source)
    assert (text(outcome), outcome.stderr) == ("ok", "here")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (
            "import socket\ndef execute(c, p): socket.create_connection(('example.org', 80))",
            "`network: true` in TOOL.md",
        ),
        ("def execute(c, p): open('/dev/i2c-1')", "`devices: [i2c-1]` in TOOL.md"),
        (
            "def execute(c, p): open('/usr/x', 'w')",
            "this tool can write only /officer/data, /tmp, /dev/shm",
        ),
        (
            "def execute(c, p):\n  with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
            "/tmp and /dev/shm hold 32 MiB each",
        ),
        ("def execute(c, p): bytearray(8 << 30)", "`memory: 512M` in TOOL.md"),
        (
            "import os, signal\ndef execute(c, p):\n  while True:\n    if not os.fork(): signal.pause()",
            "64 processes and threads",
        ),
    ],
)
async def test_a_failure_that_stems_from_a_limit_names_the_line_to_add(
    workshop, source: str, hint: str
) -> None:
    """Contract 10."""
    outcome = await workshop.call("python", source)
    assert outcome.result["isError"]
    assert hint in text(outcome)
