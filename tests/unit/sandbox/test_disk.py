"""The watch of what a call adds to its directories, on real files and a told free space."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from edged.sandbox.disk import DiskWatch
from edged.sandbox.profile import MIB, Limits

BOUNDS = Limits(disk_max=4 * MIB, files_max=100)


class Space:
    """What fstatvfs(3) says; falls when told to."""

    def __init__(self) -> None:
        self.blocks = self.inodes = 1 << 20

    def __call__(self, _fd: int) -> SimpleNamespace:
        return SimpleNamespace(f_bfree=self.blocks, f_frsize=4096, f_ffree=self.inodes)

    def fall(self, size: int, files: int = 0) -> None:
        self.blocks -= size // 4096
        self.inodes -= files


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Space:
    told = Space()
    monkeypatch.setattr(os, "fstatvfs", told)
    return told


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A tool's end and the daemon's of a socket."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        yield theirs, ours


@pytest.fixture
def watch(
    tmp_path: pathlib.Path, space: Space, ends: tuple[socket.socket, socket.socket]
) -> Iterator[DiskWatch]:
    fd = os.open(tmp_path, os.O_PATH)
    yield DiskWatch([fd], BOUNDS, time.time(), list, ends=[ends[1].fileno()])
    os.close(fd)


async def test_what_was_there_before_is_not_counted(tmp_path: pathlib.Path, space: Space) -> None:
    """Issue 2: growth of the directories during the call."""
    (tmp_path / "old").write_bytes(bytes(8 * MIB))
    fd = os.open(tmp_path, os.O_PATH)
    watch = DiskWatch([fd], BOUNDS, time.time() + 60, list)
    space.fall(8 * MIB, files=200)
    assert await watch.exceeded() == ""
    os.close(fd)


async def test_what_was_added_counts_only_when_the_space_fell(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space
) -> None:
    """A look at the free space is one system call, a walk is not."""
    (tmp_path / "new").write_bytes(bytes(8 * MIB))
    assert await watch.exceeded() == ""
    space.fall(4 * MIB)
    assert await watch.exceeded() == "disk"


async def test_files_count_whatever_they_hold(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space
) -> None:
    """Inodes are as finite as the space; a link and a directory take one each."""
    for number in range(50):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "x").symlink_to("nowhere")
    space.fall(0, files=100)
    assert await watch.exceeded() == "files"


async def test_a_walk_ends_as_soon_as_it_is_known(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space
) -> None:
    """What is taken while it lasts would be too late; others have the loop in between."""
    for number in range(1_100):
        (tmp_path / str(number)).touch()
    space.fall(0, files=1_100)
    assert await watch.exceeded() == "files"


async def test_what_lies_too_deep_counts_as_too_much(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space
) -> None:
    """Names of a path can be added without end (mkdirat(2))."""
    place = tmp_path
    for _ in range(BOUNDS.files_max - 1):
        place /= "d"
        place.mkdir()
    space.fall(4 * MIB)
    assert await watch.exceeded() == ""
    fd = os.open(tmp_path, os.O_PATH)
    watch = DiskWatch([fd], Limits(disk_max=4 * MIB), time.time(), list)
    for _ in range(32):
        place /= "d"
        place.mkdir()
    space.fall(4 * MIB)
    assert await watch.exceeded() == "disk"
    os.close(fd)


async def test_what_may_not_be_looked_at_counts_as_too_much(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the daemon is not root, a tool of the same account may shut a directory."""
    real = os.open

    def shut(path: str, flags: int, **more: int) -> int:
        if path == "shut":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, **more)

    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "open", shut)
    space.fall(4 * MIB)
    assert await watch.exceeded() == "disk"


async def test_what_others_remove_hides_no_growth(
    tmp_path: pathlib.Path, watch: DiskWatch, space: Space
) -> None:
    """A clean-up beside it freed more than the call may add."""
    space.fall(-64 * MIB, files=-1000)
    assert await watch.exceeded() == ""
    for number in range(BOUNDS.files_max):
        (tmp_path / str(number)).touch()
    space.fall(0, files=BOUNDS.files_max)
    assert await watch.exceeded() == "files"


async def test_growth_of_others_is_not_held_against_what_is_hidden_later(
    watch: DiskWatch, space: Space, ends: tuple[socket.socket, socket.socket]
) -> None:
    """Of a descriptor under way nobody knows the size: it may be what the space fell by since."""
    space.fall(6 * MIB)
    assert await watch.exceeded() == ""
    with open(os.devnull, "rb") as file:
        socket.send_fds(ends[0], [b"x"], [file.fileno()])
    space.fall(3 * MIB)
    assert await watch.exceeded() == ""
    space.fall(1 * MIB)
    assert await watch.exceeded() == "disk"


async def test_others_are_looked_past_for_a_quarter_more(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space
) -> None:
    """Each look walks the directories; a full disk must not make that a habit."""
    space.fall(0, files=100)
    assert await watch.exceeded() == ""
    for number in range(120):
        (tmp_path / str(number)).touch()
    space.fall(0, files=24)
    assert await watch.exceeded() == ""
    space.fall(0, files=1)
    assert await watch.exceeded() == "files"


async def test_a_directory_that_went_away_holds_nothing(
    watch: DiskWatch, tmp_path: pathlib.Path, space: Space
) -> None:
    """It is removed by hand while the call runs."""
    tmp_path.rmdir()
    space.fall(4 * MIB)
    assert await watch.exceeded() == ""
