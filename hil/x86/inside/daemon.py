"""`edged serve` in a process of its own, and its socket."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from edged.client import SocketClient
from hil.x86.inside.bridge import BOUND_S, until


class Daemon:
    """`edged serve` as its owner has it.

    Args:
        folder: for all of it.
        config: its edged.yaml.
    """

    def __init__(self, folder: Path, config: str) -> None:
        self._socket = str(folder / "socket")
        (folder / "edged.yaml").write_text(config)
        self._errors = folder / "stderr"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "edged", "serve", "--config", folder / "edged.yaml"),
                    *("--data", folder / "data", "--socket", self._socket, "--http", "off"),
                ],
                stderr=errors,
            )
        until("the daemon listens", lambda: "listening on" in self.log)

    @property
    def log(self) -> str:
        return self._errors.read_text()

    def ask(self, method: str, **params: Any) -> Any:
        with closing(SocketClient(self._socket, answer_s=BOUND_S)) as client:
            return client.request(method, params)

    def states(self) -> dict[str, str]:
        """Of the sensors, by name."""
        return {row["name"]: row["state"] for row in self.ask("edged/sensors")["sensors"]}

    def tool(self, name: str) -> tuple[str, str]:
        """Status of a tool and the reason for it."""
        rows = self.ask("edged/tools/state")["tools"]
        (row,) = (row for row in rows if row["name"] == name)
        return row["status"], row["reason_code"]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Facts of all events of a kind since the start."""
        found = []
        with closing(SocketClient(self._socket, answer_s=BOUND_S)) as client:
            answer, announced = client.follow("edged/events", {"since": 0})
            for _, event in announced:
                if event["kind"] == kind:
                    found.append(event["data"])
                if event["id"] == answer["last_id"]:
                    return found
        return found

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(BOUND_S) == 0, self.log
        assert "Traceback" not in self.log
