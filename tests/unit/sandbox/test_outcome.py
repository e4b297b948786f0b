"""The words for the end of a call."""

from __future__ import annotations

import pytest

from edged.sandbox import outcome
from edged.sandbox.profile import MIB, Bind, Limits, Profile

LIMITS = Limits(wall_s=60, memory_max=256 * MIB)


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("a\x1b", {"content": [{"type": "text", "text": "a\ufffd"}], "isError": False}),
        ({"content": []}, {"content": [], "isError": False}),
        ({"content": [], "is_error": True}, {"content": [], "isError": True}),
        ({"content": [], "isError": False, "is_error": True}, {"content": [], "isError": False}),
        (
            {"content": [{"type": "image", "data": "x"}], "structuredContent": {"a": 1}},
            {
                "content": [{"type": "image", "data": "x"}],
                "structuredContent": {"a": 1},
                "isError": False,
            },
        ),
    ],
)
def test_text_and_results_are_results(value, result) -> None:
    """The specification's ToolResult; contract 7: one flag."""
    assert outcome.result_of(value, "python") == result


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "`execute` returned nothing"),
        (True, "`execute` returned a boolean"),
        (1.5, "`execute` returned a number"),
        ([], "`execute` returned a list"),
        ({}, "the returned value has no list `content`"),
        ({"content": "text"}, "the returned value has no list `content`"),
        (
            {"content": [{"type": "text", "text": ""}] * 1001},
            "`content` has 1001 blocks, more than the limit of 1000",
        ),
        ({"content": [{"text": "x"}]}, "content[0] is not a block with a `type`"),
        (
            {"content": [{"type": "text", "text": "x"}, {"type": "text", "text": 1}]},
            "content[1] is a text block without `text`",
        ),
    ],
)
@pytest.mark.parametrize(
    ("language", "shape"), [("python", '{"content": ['), ("typescript", "{ content: [")]
)
def test_anything_else_says_what_to_return(value, fault: str, language: str, shape: str) -> None:
    with pytest.raises(ValueError, match="return text or") as caught:
        outcome.result_of(value, language)
    assert str(caught.value).startswith(fault)
    assert shape in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"hello\n\n", "hello"),
        (b"{not json\n", "{not json"),
        (b'{"a": 1}\n', '{"a": 1}'),
        (b'{"content": 1}', '{"content": 1}'),
        (b"", ""),
    ],
)
def test_a_shells_output_is_text(raw: bytes, text: str) -> None:
    assert outcome.shell_result(raw.decode(), raw) == outcome.text_result(text)


def test_a_shells_json_result_is_the_result() -> None:
    raw = b' {"content": [], "isError": true}\n'
    assert outcome.shell_result(raw.decode(), raw) == {"content": [], "isError": True}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("timeout", "stopped after 60 s, its time limit; `timeout: 120` in TOOL.md allows more"),
        ("memory", "out of memory: its limit is 256 MiB; `memory: 512M` in TOOL.md allows more"),
        ("cpu", "stopped at its limit of CPU time; `timeout: 120` in TOOL.md allows more"),
        (
            "output",
            "stopped after 64 MiB of output: write large output to a file and return its path",
        ),
        ("disk", "stopped: it added more than 512 MiB to its directories, the limit of one call"),
        (
            "files",
            "stopped: it added more than 50,000 files to its directories, the limit of one call",
        ),
        ("crashed", "crashed with signal 11 (SIGSEGV)"),
        ("cancelled", "cancelled"),
        ("exit", "ended with exit status 3"),
        ("ok", ""),
    ],
)
def test_every_limit_is_named_with_the_line_that_allows_more(reason, said: str) -> None:
    """Contract 10."""
    assert outcome.sentence(reason, LIMITS, 3, 11) == said


def test_a_longer_time_than_an_hour_is_not_proposed() -> None:
    """Contract 10: timeout 1 to 3600."""
    assert "`timeout: 3600`" in outcome.sentence("timeout", Limits(wall_s=3000), None, 0)
    assert "`timeout: 2`" in outcome.sentence("timeout", Limits(wall_s=0.5), None, 0)


def test_an_odd_signal_and_a_small_size_have_words() -> None:
    assert outcome.sentence("crashed", LIMITS, None, 34) == "crashed with signal 34 (SIGRTMIN)"
    assert outcome.sentence("crashed", LIMITS, None, 40) == "crashed with signal 40 (unknown)"
    assert outcome.size(4096) == "4 KiB"


PROFILE = Profile(
    binds=(Bind("/a", "/officer/data", write=True), Bind("/b", "/usr")), devices=("/dev/i2c-1",)
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "`network: true`"),
        ("fetch failed (caused by Error: getaddrinfo EAI_AGAIN x)", "`network: true`"),
        ("curl: (6) Could not resolve host: x", "`network: true`"),
        ("MemoryError", "`memory: 512M`"),
        ("RangeError: Array buffer allocation failed", "`memory: 512M`"),
        ("RuntimeError: can't start new thread", "64 processes and threads"),
        ("Error: spawn ls EAGAIN", "64 processes and threads"),
        ("OSError: [Errno 28] No space left on device", "hold 32 MiB each"),
        ("OSError: [Errno 27] File too large", "one file of this tool may have 256 MiB"),
        (
            "OSError: [Errno 30] Read-only file system: '/usr/x'",
            "only /officer/data, /tmp, /dev/shm",
        ),
        ("FileNotFoundError: '/dev/spidev0.0'", "`devices: [spidev0.0]`"),
        ("FileNotFoundError: '/dev/i2c-1'", "this board has no such device"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "`network: true`"),
        ("ModuleNotFoundError: No module named 'numpy'", "apt install python3-numpy"),
        ("write to /dev/null or /dev/stderr failed", ""),
        ("nothing special", ""),
    ],
)
def test_a_failure_that_reads_like_a_limit_has_a_hint(text: str, line: str) -> None:
    found = outcome.hint(text, PROFILE)
    assert line in found
    assert bool(line) is bool(found)


def test_hints_depend_on_what_the_tool_has() -> None:
    import msgspec

    with_network = msgspec.structs.replace(PROFILE, network=True)
    assert outcome.hint("EAI_AGAIN", with_network) == ""
    assert "64 processes" in outcome.hint("odd", PROFILE, tasks_exceeded=True)


@pytest.mark.parametrize(
    ("last", "stdout", "stderr", "text"),
    [
        (True, "out\n", "err\n", "out\nerr\nwhy"),
        (True, "", "", "why"),
        (False, "out\n", "err\n", "why\n\nIt wrote:\nout\nerr"),
        (False, "", "\n", "why"),
        (False, "", "x" * 5000, "why\n\nIt wrote:\n[...] " + "x" * 4096),
    ],
)
def test_a_failure_shows_what_was_written(last: bool, stdout: str, stderr: str, text: str) -> None:
    """Contract 7: an exit code is always kept, last."""
    assert outcome.failure_text("why", stdout, stderr, last=last) == text
