"""edged inside the emulated board, called from outside as a user would."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hil.rig import Board

CONFIG = "/etc/edged/edged.yaml"
LOG = "/var/edged.log"
PID = "/run/edged.pid"
TOKEN = "/var/lib/edged/token"
START_S = 120
CALL_S = 120
EVENT_S = 60
_POLL_S = 0.2


class Events:
    """What the daemon tells of, as it happens (server-sent events)."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._lines = response

    def next(self, kind: str, **facts: object) -> dict[str, Any]:
        """The facts of the next event of a kind in which these facts are so."""
        until = time.monotonic() + EVENT_S
        seen = []
        while time.monotonic() < until:
            name, event = self._read()
            if name == kind and facts.items() <= event["data"].items():
                return event["data"]
            seen.append((name, event["data"]))
        raise AssertionError(f"no {kind} with {facts} in {EVENT_S} s, but {seen[-5:]}")

    def _read(self) -> tuple[str, Any]:
        name = data = ""
        while line := self._lines.readline().decode():
            field, _, value = line.strip().partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif not field and data:
                return name, json.loads(data)
        raise AssertionError("the daemon closed the event stream")


class Daemon:
    """`edged serve` on the board, and `edged --url …` here.

    Args:
        board: it runs there.
        token_file: where its token is put.
    """

    def __init__(self, board: Board, token_file: Path) -> None:
        self._board, self._token_file = board, token_file

    @property
    def log(self) -> str:
        return self._board.agent.get(LOG)

    def start(self) -> None:
        """Starts it, unless it runs, and waits until it listens."""
        if self._runs():
            return
        agent = self._board.agent
        serve = f"exec python3 -m edged serve --config {CONFIG} --http 0.0.0.0:8420"
        agent.run(f"setsid sh -c 'echo $$ >{PID}; {serve}' >{LOG} 2>&1 </dev/null &")
        self._wait("listen", lambda: "listening on" in self.log)
        self._token_file.write_text(agent.get(TOKEN))
        self._token_file.chmod(0o600)

    def kill(self, signal: str) -> None:
        """Sends it a signal by name."""
        self._board.agent.run(f"kill -{signal} $(cat {PID})")

    def end(self, signal: str) -> None:
        """Sends it a signal that it does not survive."""
        self.kill(signal)
        self._wait("end", lambda: not self._runs())

    def stop(self) -> None:
        """Ends it, if it runs, as its owner does."""
        if self._runs():
            self.end("TERM")

    def cli(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of this machine for that daemon."""
        # Nothing but the command line says which daemon.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EDGED_")}
        url = f"http://127.0.0.1:{self._board.http_port}"
        return subprocess.run(
            [
                *(sys.executable, "-m", "edged", verb),
                *("--url", url, "--token-file", self._token_file, *words),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CALL_S,
            env=environment,
        )

    def call(self, tool: str, **arguments: object) -> Any:
        """The structured result of a tool that must succeed."""
        done = self.cli("call", tool, "--json", "--args", json.dumps(arguments))
        assert done.returncode == 0, f"{tool} {arguments}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)["structured"]

    def refuse(self, tool: str, **arguments: object) -> str:
        """What a tool says that must fail."""
        done = self.cli("call", tool, "--args", json.dumps(arguments))
        assert done.returncode == 1, f"{tool} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def _runs(self) -> bool:
        return bool(self._board.agent.run(f"kill -0 $(cat {PID}) 2>/dev/null && echo yes || true"))

    def _wait(self, what: str, done: Callable[[], bool]) -> None:
        until = time.monotonic() + START_S
        while not done():
            if time.monotonic() > until:
                raise RuntimeError(f"edged does not {what}:\n{self.log}")
            time.sleep(_POLL_S)

    @contextmanager
    def events(self) -> Iterator[Events]:
        """What happens from now on."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._board.http_port, timeout=EVENT_S
        )
        token = self._token_file.read_text().strip()
        connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        try:
            assert response.status == http.client.OK, response.read()
            yield Events(response)
        finally:
            response.close()
            connection.close()
