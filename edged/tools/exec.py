"""`exec`: shell commands in the sandbox, at once or as sessions that outlive the call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.clock import iso
from edged.errors import Fault, InvalidArgumentsError
from edged.results import Late, Result
from edged.tool import Context, Hints, tool
from edged.tools._forms import check_inputs

TIME_MAX = 7 * 86_400.0
"""Seconds that the configuration may allow at most."""

STRUCTURED_MAX = 32 << 10
"""Characters of output that a structured answer repeats."""

WAIT_MAX = 300.0
"""Seconds that a poll or a read may wait."""


OF = {"command": ("run",), "data": ("write",), "keys": ("send-keys",)}
"""Inputs that say what is meant, where no action does."""


class Exec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `exec`."""

    action: Annotated[
        Literal["run", "list", "poll", "read", "write", "kill", "send-keys"] | None,
        Meta(
            description="run a command (the default); list your background sessions; poll the "
            "state of one; read what it wrote since the last read; write data or send-keys to "
            "it; kill it."
        ),
    ] = None
    command: Annotated[str | None, Meta(description="For the shell (bash, else sh).")] = None
    workdir: Annotated[
        str, Meta(description="Where it starts: relative to the workspace, or absolute.")
    ] = ""
    timeout: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=TIME_MAX,
                description="Seconds after which a command is killed; of poll and read, how long "
                "to wait for the end and for output.",
            ),
        ]
        | None
    ) = None
    background: Annotated[
        bool, Meta(description="Answer at once with a sessionId; the command goes on.")
    ] = False
    pty: Annotated[
        bool, Meta(description="With a terminal of 80x24, for programs that want one.")
    ] = False
    session_id: Annotated[str | None, Meta(description="Which session.")] = msgspec.field(
        name="sessionId", default=None
    )
    keys: Annotated[
        list[str] | str | None,
        Meta(description="For send-keys: ctrl-c; up,enter; f1; a single character is itself."),
    ] = None
    data: Annotated[str | None, Meta(description="For write: text, sent as it is.")] = None


@tool(
    "exec",
    label="Run commands",
    category="filesystem",
    arguments_max=256 << 10,
    hints=Hints(read_only=False, destructive=True, idempotent=False, open_world=True),
    aliases={
        "cwd": "workdir",
        "working_dir": "workdir",
        "session_id": "sessionId",
        "session": "sessionId",
        "cmd": "command",
        "input": "data",
        "timeout_seconds": "timeout",
    },
    timeout_s=TIME_MAX,
    keep_end=True,
    own_deadline=True,
)
async def exec_(params: Exec, ctx: Context) -> Result | Late:
    """Run a shell command in a sandbox: your files are in /workspace, the host's are not there.

    Or start one in the background (a session), and drive it.
    """
    shell = ctx.services.shell
    action = params.action or _action(params)
    if action == "run":
        return await _run(shell, params, ctx)
    if action == "list":
        return _listing(shell, ctx)
    if params.session_id is None:
        raise InvalidArgumentsError([Fault("sessionId", f"is required for {action}")], "exec")
    session = shell.session(ctx.caller, params.session_id)
    wait_s = min(params.timeout or 0.0, WAIT_MAX, ctx.timeout_s)
    match action:
        case "poll":
            await session.wait(lambda: False, wait_s)
        case "read":
            return await _read(shell, session, wait_s, ctx)
        case "write":
            if params.data is None:
                raise InvalidArgumentsError([Fault("data", "is required for write")], "exec")
            return _sent(session, session.write(params.data))
        case "send-keys":
            if not params.keys:
                raise InvalidArgumentsError([Fault("keys", "is required for send-keys")], "exec")
            return _sent(session, session.press(params.keys))
        case _:
            session.kill()
            await session.wait(lambda: False, WAIT_MAX)
    status = session.status()
    waits = f"; {status['unread']} bytes to read" if status["unread"] else ""
    return results.text(f"session {session.id}: {session.ending()}{waits}", structured=status)


def _action(params: Exec) -> str:
    """What is meant where nothing is said: the specification's example names no action."""
    if params.session_id is None:
        action = "run"
    elif params.data is not None:
        action = "write"
    else:
        action = "send-keys" if params.keys else "read"
    check_inputs(params, action, OF, "exec")
    return action


async def _run(shell: Any, params: Exec, ctx: Context) -> Result | Late:
    if not params.command or not params.command.strip():
        raise InvalidArgumentsError([Fault("command", "is required")], "exec")
    order = shell.order(
        params.command, params.workdir, params.timeout or 0.0, ctx.timeout_s, pty=params.pty
    )
    if params.background:
        session = await shell.start(ctx.caller, order)
        status = session.status()
        result = results.text(
            f"session {session.id} is running: action read has its output", structured=status
        )
        result.async_ = True
        return result

    def on_update(content: list[dict[str, Any]]) -> None:
        ctx.update(results.blocks(content))

    finished = await shell.run(ctx.caller, ctx.call_id, order, on_update, ctx.share)
    if finished.is_long:
        return results.Late(lambda: _result(finished))
    return _result(finished)


def _result(finished: Any) -> Result:
    outcome = finished.outcome
    result = results.text(
        finished.text(),
        structured={
            "exit_code": outcome.exit_code,
            "signal": outcome.signal or None,
            "reason": outcome.reason,
            "timed_out": outcome.reason == "timeout",
            "duration_s": round(outcome.duration_s, 3),
            "output_bytes": outcome.bytes_seen,
        },
    )
    result.is_error = finished.failed
    if not finished.confined:
        result.sandbox = "none"
    return result


def _listing(shell: Any, ctx: Context) -> Result:
    rows = []
    for session in shell.sessions(ctx.caller):
        status = session.status()
        rows.append(
            {
                "id": status.pop("sessionId"),
                "command": session.command,
                **status,
                "pty": session.mode == "pty",
                "startedAt": iso(session.started),
            }
        )
    lines = [f"{row['id']}  {row['status']}  {_short(str(row['command']))}" for row in rows]
    text = "\n".join(lines) or "no sessions: run a command with background: true"
    return results.text(text, structured={"sessions": rows})


def _short(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


async def _read(shell: Any, session: Any, wait_s: float, ctx: Context) -> Result:
    await session.wait(lambda: bool(session.unread), wait_s)
    output, dropped = await session.read()
    lost = f"[{dropped} bytes were not read in time and are gone]" if dropped else ""
    hints = [session.hint(output)]
    if hints[0] or "No such file" in output:
        hints.append(await shell.advice(ctx.caller, session.script, session.profile))
    parts = [lost, output.rstrip("\n"), *hints, session.ending()]
    # What is long is in the text, and whole in its medium.
    short = output if len(output) <= STRUCTURED_MAX else None
    structured = {**session.status(), "output": short, "dropped": dropped}
    return results.text("\n".join(part for part in parts if part), structured=structured)


def _sent(session: Any, count: int) -> Result:
    structured = {**session.status(), "sent": count}
    return results.text(f"session {session.id}: sent {count} bytes", structured=structured)


TOOLS = (exec_,)
