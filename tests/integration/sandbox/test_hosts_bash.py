"""The host of bash tools, in real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from edged.sandbox.profile import Limits


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


async def test_parameters_are_variables_and_json_on_stdin(workshop) -> None:
    """Contract 10."""
    params = {
        "name": "Ada O'Neil\n$(id) \\ é\U0001f600",
        "count": 3,
        "loud": True,
        "rate": 0.5,
        "none": None,
    }
    source = 'printf "%s|%s|%s|%s|%s\\n" "$INPUT_NAME" "$INPUT_COUNT" "$INPUT_LOUD" "$INPUT_RATE" "${INPUT_NONE-unset}"\ncat'
    outcome = await workshop.call("bash", source, params)
    assert outcome.reason == "ok"
    assert outcome.result["isError"] is False
    variables, _, given = text(outcome).rpartition("\n")
    assert variables == "Ada O'Neil\n$(id) \\ é\U0001f600|3|true|0.5|unset"
    assert json.loads(given) == params


async def test_variables_reach_programs_that_the_tool_starts(workshop) -> None:
    outcome = await workshop.call(
        "bash", "python3 -c 'import os; print(os.environ[\"INPUT_DRY_RUN\"])'", {"dry-run": "yes"}
    )
    assert text(outcome) == "yes"


async def test_a_big_value_is_left_out_of_the_variables_only(workshop) -> None:
    """execve(2): one string holds 128 KiB; the JSON on stdin has all."""
    params = {"big": "x" * 200_000, "small": "y" * 90_000}
    source = 'echo "${INPUT_BIG-unset} ${#INPUT_SMALL}"; exec wc -c'
    outcome = await workshop.call("bash", source, params)
    assert text(outcome).split() == [
        "unset",
        "90000",
        str(len(json.dumps(params, separators=(",", ":")))),
    ]


async def test_many_big_values_still_let_programs_start(workshop) -> None:
    params = {f"v{n}": "x" * 100_000 for n in range(40)}
    outcome = await workshop.call("bash", "exec wc -c", params)
    assert outcome.result["isError"] is False


async def test_a_nul_character_is_refused_with_the_name_of_the_input(workshop) -> None:
    outcome = await workshop.call("bash", "cat", {"name": "a\0b"})
    assert outcome.reason == "failed"
    assert text(outcome).startswith("`name` has a NUL character")


@pytest.mark.parametrize(
    "source",
    [
        "echo out; echo err >&2; exit 3",
        "set -e\necho out; echo err >&2; (exit 3)\necho never",
        "echo out; echo err >&2\nfail() { return 3; }\nfail",
        "trap 'echo err >&2; exit 3' EXIT\necho out",
    ],
)
async def test_the_exit_status_says_that_it_failed_and_is_last(workshop, source: str) -> None:
    """Contract 7 and 10: fails by exit status; an exit code is always kept, last."""
    outcome = await workshop.call("bash", source)
    assert (outcome.reason, outcome.exit_code) == ("exit", 3)
    assert outcome.result["isError"]
    assert text(outcome).splitlines() == ["out", "err", "ended with exit status 3"]


async def test_stderr_of_a_success_is_for_the_log(workshop) -> None:
    outcome = await workshop.call("bash", "echo fine; echo warning >&2")
    assert (text(outcome), outcome.stderr) == ("fine", "warning\n")


async def test_one_json_result_on_stdout_is_the_result(workshop) -> None:
    """Contract 10: text, or one JSON result."""
    result = {
        "content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}],
        "isError": True,
    }
    outcome = await workshop.call("bash", f"echo '{json.dumps(result)}'")
    assert outcome.result == result


@pytest.mark.parametrize(
    "output", ['{"temperature": 21}', '{"content": "not a list"}', "{ not json", "[1]"]
)
async def test_other_json_is_text(workshop, output: str) -> None:
    outcome = await workshop.call("bash", f"echo '{output}'")
    assert text(outcome) == output


async def test_no_output_is_an_empty_text(workshop) -> None:
    outcome = await workshop.call("bash", ":")
    assert outcome.result == {"content": [{"type": "text", "text": ""}], "isError": False}


async def test_updates_replace_each_other_in_order(workshop) -> None:
    """Contract 10: updates with the `edged-update` function."""
    seen: list[str] = []
    source = "edged-update 'phase 1\nof 2 \\n \\\\ é'\nedged-update \"$(printf 'x%.0s' {1..9000})\"\necho done"
    outcome = await workshop.pool.call(
        workshop.job("bash", source), "1", {}, lambda c: seen.append(c[0]["text"])
    )
    assert seen[:2] == ["phase 1\nof 2 \\n \\\\ é", "x" * 9000]
    assert text(outcome) == "done"


async def test_standard_output_is_accumulated_in_updates(workshop) -> None:
    """Contract 7: bash's standard output is accumulated by its host."""
    seen: list[str] = []
    source = "echo one; until [[ -e go ]]; do :; done; echo two; until [[ -e on ]]; do :; done; echo three"
    job = workshop.job("bash", source)

    def on_update(content) -> None:
        seen.append(content[0]["text"])
        name = {"one\n": "go", "one\ntwo\n": "on"}.get(seen[-1])
        if name:
            open(os.path.join(workshop.data, name), "w").close()

    async with asyncio.timeout(20):
        outcome = await workshop.pool.call(job, "1", {}, on_update)
    assert text(outcome) == "one\ntwo\nthree"
    assert seen[:2] == ["one\n", "one\ntwo\n"]


async def test_the_script_sees_itself_as_if_it_were_run(workshop) -> None:
    source = 'echo "$0 ${BASH_SOURCE[0]} $#"; . "$(dirname "${BASH_SOURCE[0]}")/lib.sh"; "$(dirname "$0")/bin/tool"'
    job = workshop.job(
        "bash", source, files={"lib.sh": "echo lib", "bin/tool": "#!/bin/sh\necho bin\n"}
    )
    os.chmod(os.path.join(workshop.folder, job.name, "bin/tool"), 0o755)
    outcome = await workshop.pool.call(job, "1", {})
    entry = f"/officer/tools/{job.name}/index.sh"
    assert text(outcome).splitlines() == [f"{entry} {entry} 0", "lib", "bin"]


async def test_a_syntax_error_is_told_with_its_line(workshop) -> None:
    outcome = await workshop.call("bash", "echo a\nif true; then\n")
    assert outcome.result["isError"]
    assert "index.sh: line 3: syntax error" in text(outcome)


async def test_a_forged_frame_in_output_is_only_output(workshop) -> None:
    """Output of others passes through a shell: it must not speak for the tool."""
    outcome = await workshop.call(
        "bash", "printf '\\x1e0123456789abcdefr.0004null'; echo; echo real"
    )
    assert text(outcome).splitlines() == ["\ufffd0123456789abcdefr.0004null", "real"]


async def test_long_output_keeps_its_beginning_and_end(workshop) -> None:
    outcome = await workshop.call(
        "bash", "echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo last"
    )
    assert text(outcome).startswith("first\nxxx")
    assert text(outcome).endswith("xxxlast")
    assert "bytes left out" in text(outcome)
    assert outcome.bytes_seen == 9_000_011
    assert len(text(outcome)) < 4 << 20


async def test_a_cancel_lets_traps_run(workshop) -> None:
    """Contract 10: told by the signal, killed 0.5 s later."""
    source = "trap 'echo told > /officer/data/trap; exit' TERM\nedged-update waiting\nsleep 60"
    waiting = asyncio.Event()
    task = asyncio.create_task(
        workshop.pool.call(workshop.job("bash", source), "1", {}, lambda _: waiting.set())
    )
    async with asyncio.timeout(20):
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert os.listdir(workshop.data) == ["trap"]


async def test_output_before_a_timeout_is_kept(workshop) -> None:
    limits = Limits(wall_s=1)
    outcome = await workshop.call("bash", "echo before; trap '' TERM; sleep 60", limits=limits)
    assert outcome.reason == "timeout"
    assert text(outcome).splitlines() == [
        "before",
        "stopped after 1 s, its time limit; `timeout: 2` in TOOL.md allows more",
    ]


async def test_tee_and_pipelines_work(workshop) -> None:
    outcome = await workshop.call(
        "bash", "set -o pipefail\necho a | tee /tmp/log | tr a b\ncat /tmp/log"
    )
    assert text(outcome) == "b\na"
