"""The emulated board: started once, given commands inside, its hardware turned from outside.

Between edged and the chips there is nothing of this project's own but the kernel's drivers;
what a chip measures, what drives a line and what arrives at the far end of a UART is said and
seen through QEMU (QMP and qtest).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
WORKDIR = Path(os.environ.get("EDGED_HIL_CACHE") or Path.home() / ".cache/edged-hil")
BOOT_S = 300
"""An emulated CPU on a machine with other work; alone it takes a tenth."""
ANSWER_S = 60
_POLL_S = 0.1


def build() -> Path:
    """Directory of the board's files; made where they are missing, edged's own always."""
    built = WORKDIR / "sabrelite"
    environment = {**os.environ, "PYTHON": sys.executable}
    for script in ("build-root.sh", "build-initrd.sh"):
        subprocess.run([HERE / script, built], check=True, env=environment)
    return built


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Lines:
    """Lines over a stream: what is asked, and what is answered."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._file = sock, sock.makefile("rwb")

    def send(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def receive(self) -> str:
        line = self._file.readline()
        if not line:
            raise EOFError("the emulator or its agent went away")
        return line.decode()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self._sock.close()


class Agent:
    """The inside of a guest, as its root.

    Args:
        sock: connected to guest/agent.py.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        self._lines = Lines(sock)

    def run(self, command: str, *, timeout: float = ANSWER_S) -> str:
        """What a shell command prints; one that fails is an error."""
        return self._ask({"run": command, "timeout": timeout})["output"]

    def put(self, path: str, data: str) -> None:
        self._ask({"put": path, "data": base64.b64encode(data.encode()).decode()})

    def get(self, path: str) -> str:
        return base64.b64decode(self._ask({"get": path})["data"]).decode(errors="replace")

    def close(self) -> None:
        self._lines.close()

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        self._lines.send(json.dumps(what))
        done = json.loads(self._lines.receive())
        if done["status"]:
            raise RuntimeError(f"{what}: exit status {done['status']}: {done['errors']}")
        return done


class Chips:
    """Properties of the emulated chips, over QMP."""

    def __init__(self, sock: socket.socket) -> None:
        self._lines = Lines(sock)
        self._lines.receive()
        self._do("qmp_capabilities")

    def set(self, chip: str, name: str, value: int) -> None:
        self._do("qom-set", path=f"/machine/peripheral/{chip}", property=name, value=value)

    def get(self, chip: str, name: str) -> Any:
        return self._do("qom-get", path=f"/machine/peripheral/{chip}", property=name)

    def close(self) -> None:
        self._lines.close()

    def _do(self, command: str, **arguments: object) -> Any:
        self._lines.send(json.dumps({"execute": command, "arguments": arguments}))
        while True:
            answer = json.loads(self._lines.receive())
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]


class Pins:
    """The pins of one GPIO controller, over qtest: levels in, and levels out as they change.

    Args:
        sock: connected to QEMU's qtest.
        controller: its path in QEMU; one a run, for QEMU reports the outputs of one.
    """

    def __init__(self, sock: socket.socket, controller: str) -> None:
        self._lines = Lines(sock)
        self._controller = controller
        self._changed = threading.Condition()
        self._answers: deque[str] = deque()
        self._levels: dict[int, bool] = {}
        self._open = True
        self._thread = threading.Thread(target=self._listen, name="qtest")
        self._thread.start()
        self._do(f"irq_intercept_out {controller}")

    def drive(self, pin: int, level: bool) -> None:
        """What is wired to an input gives it this level."""
        self._do(f"set_irq_in {self._controller} unnamed-gpio-in {pin} {int(level)}")

    def wait(self, pin: int, level: bool, timeout: float = ANSWER_S) -> bool:
        """Whether an output has a level, or comes to have it in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._levels.get(pin) == level, timeout)

    def level(self, pin: int) -> bool | None:
        """The level of an output; None before it was seen to change."""
        with self._changed:
            return self._levels.get(pin)

    def close(self) -> None:
        self._lines.close()
        self._thread.join()

    def _do(self, line: str) -> None:
        self._lines.send(line)
        with self._changed:
            self._changed.wait_for(lambda: self._answers or not self._open, ANSWER_S)
            answer = self._answers.popleft() if self._answers else "no answer"
        if not answer.startswith("OK"):
            raise RuntimeError(f"{line}: {answer}")

    def _listen(self) -> None:
        """Takes "IRQ raise 6" and "IRQ lower 6" from among the answers."""
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                line = self._lines.receive().strip()
                with self._changed:
                    if line.startswith("IRQ"):
                        _, edge, pin = line.split()
                        self._levels[int(pin)] = edge == "raise"
                    else:
                        self._answers.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._open = False
            self._changed.notify_all()


class Hands:
    """Does outside the board what the conformance suite inside it asks for (guest/rig.py).

    `with` starts and ends it. Lines of JSON, each answered: a verb and its words.
    """

    def __init__(self, board: Board, sock: socket.socket) -> None:
        self._board, self._lines = board, Lines(sock)
        self._thread = threading.Thread(target=self._serve, name="hands")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            while True:
                answer = self._do(*json.loads(self._lines.receive()))
                self._lines.send(json.dumps(answer))

    def _do(self, verb: str, *words: Any) -> Any:
        board = self._board
        if verb == "set":
            return board.chips.set(*words)
        if verb == "drive":
            return board.pins.drive(*words)
        if verb == "shows":
            pin, level = words
            # What never changed was not told of.
            return board.pins.level(pin) is None and not level or board.pins.wait(pin, level)
        if verb == "send":
            return board.uart.sendall(bytes.fromhex(words[0]))
        assert verb == "receive", verb
        data = b""
        while len(data) < words[0]:
            data += board.uart.recv(words[0] - len(data))
        return data.hex()


class Board:
    """One run of the emulated board; `with` starts and ends it.

    Args:
        built: what `build` made.
        run: directory for its sockets and its console.
        options: further ones of QEMU's.
    """

    agent: Agent
    chips: Chips
    pins: Pins
    uart: socket.socket
    """The far end of /dev/ttymxc2."""

    def __init__(self, built: Path, run: Path, options: Sequence[str] = ()) -> None:
        self._built, self._run, self._options = built, run, options
        self._port, self.http_port = free_port(), free_port()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def console(self) -> str:
        path = self._run / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def hands(self) -> Hands:
        """For a suite inside; use it in a `with` statement."""
        return Hands(self, self._socket("hands", time.monotonic() + ANSWER_S))

    def _start(self, stack: contextlib.ExitStack) -> None:
        script = HERE / "boards/sabrelite.sh"
        ports = [str(self._port), str(self.http_port)]
        log = stack.enter_context((self._run / "qemu.log").open("w"))
        # It ends with this process, however that ends.
        self._qemu = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "TERM", script, "run", self._built, self._run),
                *ports,
                *self._options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        stack.callback(self._end)
        until = time.monotonic() + BOOT_S
        self.chips = stack.enter_context(contextlib.closing(Chips(self._socket("qmp", until))))
        pins = Pins(self._socket("qtest", until), "/machine/soc/gpio1")
        self.pins = stack.enter_context(contextlib.closing(pins))
        self.uart = stack.enter_context(self._socket("uart", until))
        self.uart.settimeout(ANSWER_S)
        while "the agent listens" not in self.console:
            self._check("its agent does not listen", until)
        to_agent = socket.create_connection(("127.0.0.1", self._port), ANSWER_S)
        self.agent = stack.enter_context(contextlib.closing(Agent(to_agent)))
        # Its own clock has no battery, and there is no time service.
        self.agent.run(f"date -s @{int(time.time())}")

    def _socket(self, name: str, until: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        while True:
            try:
                sock.connect(str(self._run / f"{name}.sock"))
                return sock
            except OSError:
                self._check(f"QEMU does not open {name}.sock", until)

    def _check(self, problem: str, until: float) -> None:
        """Waits a little for the emulator, which must still be running and have time left."""
        if self._qemu.poll() is not None or time.monotonic() > until:
            said = (self._run / "qemu.log").read_text(errors="replace")
            raise RuntimeError(f"{problem}:\n{said[-2000:]}\n{self.console[-4000:]}")
        time.sleep(_POLL_S)

    def _end(self) -> None:
        self._qemu.terminate()
        try:
            self._qemu.wait(10)
        except subprocess.TimeoutExpired:
            self._qemu.kill()
            self._qemu.wait()
