"""The emulated board with edged on it: built where it is missing, started once.

What is built is kept in EDGED_HIL_CACHE (by default ~/.cache/edged-hil).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hil.bench import named
from hil.daemon import CONFIG, Daemon
from hil.rig import Board, build

HERE = Path(__file__).parent
collect_ignore = [] if named() else ["test_bench.py"]


@pytest.fixture(scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """Boots in a quarter of a minute, or some minutes on a busy machine."""
    with Board(build(), tmp_path_factory.mktemp("board")) as board:
        board.agent.put(CONFIG, (HERE / "edged.yaml").read_text())
        yield board


@pytest.fixture(scope="session")
def daemon(board: Board, tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    return Daemon(board, tmp_path_factory.mktemp("daemon") / "token")


@pytest.fixture
def edged(daemon: Daemon) -> Daemon:
    """The daemon, running: a test may have ended it."""
    daemon.start()
    return daemon
