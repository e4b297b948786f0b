"""The walk that stands in for openat2 holds in the same races (issue 4, Shows)."""

import os
import subprocess
import sys

import pytest

from edged.workspace import beneath

SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
RENAME_EXCHANGE = 2  # renameat2(2)
while True:
    for _ in range(50):
        for one, other in ((b"dir", b"dirlink"), (b"file", b"filelink")):
            if libc.renameat2(-100, one, -100, other, RENAME_EXCHANGE):
                raise OSError(ctypes.get_errno(), one)
    os.write(1, b".")
"""
RACES = 200
OUT = 0o600


@pytest.fixture
def raced(tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder, text in ((inside, "inside"), (outside, "SECRET")):
        (folder / "dir").mkdir(parents=True)
        (folder / "dir" / "file").write_text(text)
        (folder / "file").write_text(text)
    (inside / "dirlink").symlink_to("../out/dir")
    (inside / "filelink").symlink_to(outside / "file")
    process = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(inside)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.read(1) == b"."
        yield inside, outside, process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("way", [beneath.open_at, beneath.walk])
@pytest.mark.parametrize("links", [True, False])
def test_no_race_leads_out(raced, way, links):
    """Each open is inside or refused, and both happen."""
    inside, outside, process = raced
    base = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    opened = refused = 0
    try:
        while min(opened, refused) < RACES // 4 or opened + refused < RACES:
            for path in ("dir/file", "file", "dir/new"):
                try:
                    fd = way(base, path, os.O_RDWR | os.O_CREAT, OUT, links=links)
                except OSError:
                    refused += 1
                    continue
                opened += 1
                with os.fdopen(fd, "r+") as file:
                    assert "SECRET" not in file.read()
                    file.write(".")
            assert process.poll() is None
    finally:
        os.close(base)
    assert sorted(os.listdir(outside / "dir")) == ["file"]
    assert (outside / "dir" / "file").read_text() == (outside / "file").read_text() == "SECRET"
