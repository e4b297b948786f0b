"""Runs one call of a Python tool inside its sandbox.

Started as `python3 -s -u /edged/host.py ENTRY NONCE`. Loads ENTRY, says that it
is ready, waits for the call on descriptor 0, answers on descriptor 1 and exits.
Descriptor 0 is /dev/null from then on, and what the tool prints goes to stderr,
so that no process of the tool can mistake the two pipes for its own.

Every message is one or more frames, each a single write of at most PIPE_BUF
bytes (atomic by pipe(7)), so that output of the tool's children falls between
frames: 0x1e, NONCE (16), kind, `+` (more follows) or `.`, length (4 hex), data.
Kinds: R ready; u update and r result, as JSON; f failure, as text.
"""

from __future__ import annotations

import _thread
import atexit
import json
import os
import signal
import sys

FRAME_DATA = 4096 - 23  # PIPE_BUF less the header
RESULT_MAX = 16 << 20
FRAMES_SHOWN = 10
SHAPE = (
    "return text, or "
    '{"content": [{"type": "text", "text": "..."}]} with "isError": True for a failure'
)


class AbortSignal:
    """Tells the tool that its call was cancelled; any thread.

    The process tree is killed half a second after `aborted` became true.
    """

    def __init__(self) -> None:
        self.aborted = False
        self.loop = None
        self._listeners = []
        self._gate = _thread.allocate_lock()
        self._gate.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the cancel at most `timeout` seconds; returns `aborted`."""
        if not self.aborted and self._gate.acquire(timeout=-1 if timeout is None else timeout):
            self._gate.release()
        return self.aborted

    def add_listener(self, listener: callable) -> None:
        """Calls `listener()` once on cancel: in the event loop of an async tool, else a thread."""
        self._listeners.append(listener)
        if self.aborted:
            listener()

    def abort(self, *_: object) -> None:
        """Handles the signal by which the daemon cancels."""
        if self.aborted:
            return
        self.aborted = True
        self._gate.release()
        if self.loop:
            self.loop.call_soon_threadsafe(self._tell)
        else:  # not in this handler: a listener may wait for what the main thread holds
            _thread.start_new_thread(self._tell, ())

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class Channel:
    """Writes messages to the daemon; any thread."""

    def __init__(self, nonce: str) -> None:
        self.head = b"\x1e" + nonce.encode()
        self.lock = _thread.allocate_lock()

    def send(self, kind: bytes, data: bytes) -> None:
        """Sends one message, in as many frames as it needs."""
        with self.lock:
            for start in range(0, max(len(data), 1), FRAME_DATA):
                part = data[start : start + FRAME_DATA]
                more = b"+" if start + FRAME_DATA < len(data) else b"."
                self.write(b"%s%s%s%04x%s" % (self.head, kind, more, len(part), part))

    def write(self, frame: bytes) -> None:
        """Writes one frame, whole."""
        while True:
            try:
                os.write(1, frame)
                return
            except BlockingIOError:  # a child made the shared pipe non-blocking
                import select

                select.select((), (1,), ())

    def fail(self, message: str) -> None:
        """Answers with a failure that the tool did not return itself."""
        self.send(b"f", message.encode("utf-8", "replace"))


class BadResultError(Exception):
    """What `execute` returned or reported cannot be sent."""


def encode(value: object, what: str) -> bytes:
    """JSON bytes of a result or update; says which part cannot be sent."""
    try:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError) as error:
        place = misfit(value, what) or f"{what}: {error}"
        raise BadResultError(f"{place}; {SHAPE}") from None
    if len(data) > RESULT_MAX:
        raise BadResultError(
            f"{what} is {len(data) >> 20} MiB, more than the limit of {RESULT_MAX >> 20} MiB: "
            "save it to a file and return its path"
        )
    return data


def misfit(value: object, place: str, depth: int = 0) -> str | None:
    """Names the first part of `value` that JSON cannot hold, or None."""
    if depth > 64:
        return f"{place} is nested too deeply or contains itself"
    if isinstance(value, float):
        finite = value - value == 0
        return None if finite else f"{place} is {value}, which JSON cannot hold"
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        faults = (
            misfit(item, f"{place}[{key!r}]", depth + 1)
            if isinstance(key, (str, int))
            else f"{place} has a key of type {type(key).__name__}"
            for key, item in items
        )
        return next(filter(None, faults), None)
    if value is None or isinstance(value, (str, int)):
        return None
    hint = ": decode it, or encode it as base64" if isinstance(value, (bytes, bytearray)) else ""
    return f"{place} is of type {type(value).__name__}, which JSON cannot hold{hint}"


def explain(error: BaseException, folder: str) -> str:
    """An exception for the agent: type, message, and the lines of the tool's own files."""
    try:
        import traceback

        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        own = traceback.extract_tb(error.__traceback__)
        lines = [
            f"\n  at {frame.filename}:{frame.lineno} in {frame.name}"
            + (f": {frame.line}" if frame.line else "")
            for frame in own
            if frame.filename.startswith(folder)
        ]
        if len(lines) > FRAMES_SHOWN:  # a recursion
            half = FRAMES_SHOWN // 2
            lines[half:-half] = [f"\n  ... {len(lines) - 2 * half} more"]
        text += "".join(lines)
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause:
            text += f"\n  caused by {type(cause).__name__}: {cause}"
        return text
    except (MemoryError, SystemError):  # the limit that ended the tool can hit this too
        return f"{type(error).__name__}: {error}"


def load(entry: str) -> tuple[callable, int]:
    """Imports the tool; returns its `execute` and how many arguments it is given."""
    folder, file = os.path.split(entry)
    sys.path[0] = folder
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
    sys.dont_write_bytecode = True
    module = __import__(file.removesuffix(".py"))
    execute = getattr(module, "execute", None)
    if not callable(execute):
        raise BadResultError(no_execute(module, file))
    accepted = positional(execute)
    if accepted < 2:
        raise BadResultError(
            f"`execute` of {file} must accept (tool_call_id, params): write "
            "`def execute(tool_call_id, params, signal=None, on_update=None):`"
        )
    if getattr(getattr(execute, "__code__", None), "co_flags", 0) & 0x80:  # CO_COROUTINE
        import asyncio  # noqa: F401  in a spare this is time before the call
    return execute, accepted


def no_execute(module: object, file: str) -> str:
    """What to write when the entry file does not export `execute`."""
    text = (
        f"{file} has no function `execute`: write "
        "`def execute(tool_call_id, params, signal=None, on_update=None):` "
        f"at its top level and {SHAPE}."
    )
    own = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    if own:
        text += f" A class (`{own[0]}`) is not called; a plain function is."
    if callable(getattr(module, "main", None)):
        text += ' `main` and code under `if __name__ == "__main__"` do not run in a tool.'
    return text


def positional(function: callable) -> int:
    """How many of the four arguments `function` takes by position."""
    if type(function) is not type(positional):  # a method, a partial, an object
        import inspect

        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return 4
        by_position = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        return min(4, sum(kind in by_position for kind in kinds))
    code = function.__code__
    return 4 if code.co_flags & 0x04 else min(4, code.co_argcount)  # CO_VARARGS


def read_call() -> dict | None:
    """The call from descriptor 0, to its end; None when there is none."""
    data = bytearray()
    while chunk := os.read(0, 1 << 16):
        data += chunk
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return json.loads(data) if data else None


def run(execute: callable, accepted: int, call: dict, channel: Channel) -> object:
    """Calls the tool; returns what it returned."""
    abort = AbortSignal()
    signal.signal(signal.SIGUSR2, abort.abort)

    def on_update(content: object) -> None:
        if isinstance(content, str):
            content = {"content": [{"type": "text", "text": content}]}
        channel.send(b"u", encode(content, "the update"))

    result = execute(*(call["id"], call["params"], abort, on_update)[:accepted])
    if hasattr(result, "__await__"):
        import asyncio

        async def main() -> object:
            abort.loop = asyncio.get_running_loop()
            return await result

        result = asyncio.run(main())
    return result


def flush() -> None:
    """Writes out what the tool left unwritten: the process ends without a tear-down."""
    atexit._run_exitfuncs()  # noqa: SLF001  os._exit runs none
    sys.stderr.flush()
    if len(os.listdir("/proc/self/fd")) > 4:  # 0, 1, 2 and the listing's own
        import gc
        import io

        for thing in gc.get_objects():
            if isinstance(thing, io.IOBase) and not thing.closed and thing.writable():
                thing.flush()


def main() -> None:
    """Loads, waits, calls, answers."""
    entry, nonce = sys.argv[1:3]
    sys.argv[:] = [entry]
    folder = os.path.dirname(entry) + "/"
    channel = Channel(nonce)
    sys.stdout = sys.__stdout__ = sys.stderr
    try:
        execute, accepted = load(entry)
        # What a call needs at its end is in place before it begins.
        encode(json.loads('{"content": [{"type": "text", "text": ""}]}'), "")
        channel.send(b"R", b"")
        call = read_call()
        if call is None:
            os._exit(0)
        result = encode(run(execute, accepted, call, channel), "the result")
        flush()
        channel.send(b"r", result)
    except BadResultError as error:
        channel.fail(str(error))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        detail = f": {error.code}" if isinstance(error.code, str) else ""
        channel.fail(f"the tool ended without a result (exit status {status}){detail}; {SHAPE}")
    except BaseException as error:
        channel.fail(explain(error, folder))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
