"""Files behind media:// URLs: whose, how many, how long."""

import os
import subprocess
import sys
import threading

import pytest

from edged.errors import NotFoundError, StoreError, TooLargeError
from edged.media import SCHEME, Bounds, Media
from edged.testing.clock import FakeClock

ADA, BOB = "ada@example.org", "bob@example.org"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def media(tmp_path, clock):
    return Media(
        str(tmp_path), clock, Bounds(item_max=100, total_max=250, count_max=5, age_max_s=60)
    )


def content(media, user, uri):
    with open(media.path(media.get(user, uri)), "rb") as file:
        return file.read()


def on_disk(tmp_path, user=ADA):
    return sorted(os.listdir(tmp_path / user / "media"))


def test_what_was_put_can_be_had_by_its_url_and_its_id(media, clock):
    """Contract, section 6: GET /api/media/{id}."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    found = media.get(ADA, uri)
    assert uri == SCHEME + found.id
    assert media.get(ADA, found.id) == found
    assert (found.user, found.mime_type, found.name) == (ADA, "text/plain", "output")
    assert (found.size, found.created) == (5, clock.now())
    assert content(media, ADA, uri) == b"hello"


def test_what_was_put_is_there_after_a_restart(media, tmp_path, clock):
    """The module's law: what `put` returned is on disk."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    again = Media(str(tmp_path), clock)
    assert again.get(ADA, uri) == media.get(ADA, uri)
    assert content(again, ADA, uri) == b"hello"


def test_files_are_for_the_daemon_alone(media, tmp_path):
    uri = media.put(ADA, b"hello", "text/plain", "output")
    path = media.path(media.get(ADA, uri))
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(tmp_path / ADA / "media").st_mode & 0o777 == 0o700


def test_a_medium_is_its_callers_or_the_owners(media):
    """Contract, section 6."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    with pytest.raises(NotFoundError, match="never yours"):
        media.get(BOB, uri)
    assert media.get(BOB, uri, owner=True).user == ADA
    with pytest.raises(NotFoundError):
        media.get(BOB, "0" * 32, owner=True)


def test_an_owner_of_an_empty_board_finds_nothing(tmp_path, clock):
    with pytest.raises(NotFoundError):
        Media(str(tmp_path / "none"), clock).get(ADA, "x", owner=True)


def test_ids_cannot_be_guessed(media):
    """MCP: explicit handles of at least 122 bits of entropy."""
    ids = {media.put(ADA, b"", "text/plain", "x").removeprefix(SCHEME) for _ in range(5)}
    assert len(ids) == 5
    assert all(len(bytes.fromhex(i)) == 16 for i in ids)


@pytest.mark.parametrize(
    "reference", ["", "../x", "media://", "media://../../etc/passwd", "x" * 10_000]
)
def test_what_is_no_id_is_not_found(media, reference):
    """Paths are made of ids that are known, never of what was asked for."""
    with pytest.raises(NotFoundError) as caught:
        media.get(ADA, reference)
    assert len(str(caught.value)) < 200


def test_a_medium_is_read_in_parts(media):
    """A client of the socket asks for one part after another."""
    found = media.get(ADA, media.put(ADA, b"hello", "text/plain", "output"))
    assert media.read(found, 0, 3) == b"hel"
    assert media.read(found, 3, 100) == b"lo"
    assert media.read(found, 5, 100) == b""
    assert media.read(found, -1, 1) == b"h"
    os.unlink(media.path(found))
    with pytest.raises(StoreError, match="cannot read .*: No such file"):
        media.read(found, 0, 3)


# Bounds -----------------------------------------------------------------------------------


def test_a_medium_expires(media, clock, tmp_path):
    """Contract, section 6: bounded in size and age."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    clock.advance(60)
    assert media.get(ADA, uri)
    clock.advance(1)
    with pytest.raises(NotFoundError, match="expired"):
        media.get(ADA, uri)
    assert on_disk(tmp_path) == []


def test_what_expired_goes_when_something_new_comes(media, clock, tmp_path):
    for _ in range(2):
        media.put(ADA, b"old", "text/plain", "output")
    clock.advance(61)
    uri = media.put(ADA, b"new", "text/plain", "output")
    assert len(on_disk(tmp_path)) == 2
    assert content(media, ADA, uri) == b"new"


def test_what_expired_behind_a_jump_of_the_clock_goes_too(media, clock, tmp_path):
    """A board without an RTC stored the first one in the future."""
    clock.jump(1000)
    future = media.put(ADA, b"future", "text/plain", "output")
    clock.jump(-1000)
    media.put(ADA, b"past", "text/plain", "output")
    clock.advance(61)
    media.put(ADA, b"now", "text/plain", "output")
    assert len(on_disk(tmp_path)) == 4
    assert content(media, ADA, future) == b"future"


def test_one_item_is_bounded(media):
    media.put(ADA, b"x" * 100, "text/plain", "output")
    with pytest.raises(TooLargeError, match="101 bytes is over the limit of 100"):
        media.put(ADA, b"x" * 101, "text/plain", "output")


def test_an_item_over_the_total_drives_nothing_out(tmp_path, clock):
    media = Media(str(tmp_path), clock, Bounds(item_max=100, total_max=50))
    uri = media.put(ADA, b"small", "text/plain", "output")
    with pytest.raises(TooLargeError, match="limit of 50"):
        media.put(ADA, b"x" * 60, "text/plain", "output")
    assert media.get(ADA, uri)


def test_the_oldest_go_when_the_total_is_full(media):
    """Per user: another's media do not suffer."""
    others = media.put(BOB, b"x" * 100, "text/plain", "output")
    uris = [media.put(ADA, b"x" * 100, "text/plain", "output") for _ in range(3)]
    with pytest.raises(NotFoundError):
        media.get(ADA, uris[0])
    assert media.get(ADA, uris[1])
    assert media.get(ADA, uris[2])
    assert media.get(BOB, others)


def test_the_oldest_go_when_there_are_too_many(media, tmp_path):
    uris = [media.put(ADA, b"", "text/plain", "output") for _ in range(7)]
    assert len(on_disk(tmp_path)) == 2 * 5
    with pytest.raises(NotFoundError):
        media.get(ADA, uris[1])
    assert media.get(ADA, uris[2])


def test_bounds_hold_after_a_restart_too(media, tmp_path, clock):
    first = media.put(ADA, b"x" * 100, "text/plain", "output")
    clock.advance(1)
    media.put(ADA, b"x" * 100, "text/plain", "output")
    again = Media(str(tmp_path), clock, Bounds(item_max=100, total_max=250))
    again.put(ADA, b"x" * 100, "text/plain", "output")
    assert len(on_disk(tmp_path)) == 4
    with pytest.raises(NotFoundError):
        again.get(ADA, first)


def test_many_threads_stay_within_the_bounds(tmp_path, clock):
    """Results are stored off the loop, several at once."""
    media = Media(str(tmp_path), clock, Bounds(item_max=100, total_max=1000, count_max=50))
    start = threading.Barrier(4)

    def work():
        start.wait(10)
        for _ in range(10):
            media.put(ADA, b"x" * 100, "text/plain", "output")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    again = Media(str(tmp_path), clock)
    kept = [name for name in on_disk(tmp_path) if not name.endswith(".json")]
    assert 7 <= len(kept) <= 10
    assert all(again.get(ADA, key) and media.get(ADA, key) for key in kept)


# What a crash or a disk leaves ------------------------------------------------------------


def test_what_a_crash_left_half_done_is_removed(media, tmp_path, clock):
    """Data without a description, a description without data, temporary files."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    directory = tmp_path / ADA / "media"
    for name in ("a" * 32, "b" * 32 + ".json", "c" * 32 + ".new", "d" * 32 + ".json.new"):
        (directory / name).write_bytes(b"half")
    again = Media(str(tmp_path), clock)
    assert content(again, ADA, uri) == b"hello"
    key = uri.removeprefix(SCHEME)
    assert on_disk(tmp_path) == [key, f"{key}.json"]


@pytest.mark.parametrize("place", ["tools", "cache", "local"])
def test_what_is_not_the_stores_own_is_left_alone(media, tmp_path, clock, place):
    """A tool named media lies in tools/media; a person may put a file anywhere.

    Architecture, laws, state: a file that is not ours is never erased, nor expires.
    """
    directory = tmp_path / place / "media"
    directory.mkdir(parents=True)
    names = ["TOOL.md", "a" * 31, "a" * 33, "index.py", "notes", "notes.json", "x" * 32 + ".new"]
    if place != "local":
        names = sorted([*names, "a" * 32, "b" * 32 + ".json"])
    for name in names:
        (directory / name).write_bytes(b"another's")
    with pytest.raises(NotFoundError):
        media.get(ADA, "0" * 32, owner=True)
    if place == "local":
        media.put("local", b"x" * 100, "text/plain", "output")
        clock.advance(61)
        with pytest.raises(NotFoundError):
            media.get("local", "notes")
        uri = media.put("local", b"new", "text/plain", "output")
        names += [key := uri.removeprefix(SCHEME), f"{key}.json"]
    assert on_disk(tmp_path, place) == sorted(names)


@pytest.mark.parametrize("data", [b"", b'{"id": 5}', b"\x00" * 100, b"[" * 100_000])
def test_a_broken_description_does_not_lose_the_medium(media, tmp_path, clock, data, capsys):
    """Architecture, laws, state: a broken file is never erased."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    path = media.path(media.get(ADA, uri))
    os.utime(path, (clock.now() - 5, clock.now() - 5))
    with open(path + ".json", "wb") as file:
        file.write(data)
    again = Media(str(tmp_path), clock)
    found = again.get(ADA, uri)
    assert (found.mime_type, found.name, found.size) == ("application/octet-stream", "data", 5)
    assert found.created == clock.now() - 5
    assert content(again, ADA, uri) == b"hello"
    assert "is broken" in capsys.readouterr().err


def test_a_directory_that_was_moved_to_another_user_is_that_users(media, tmp_path, clock):
    """Backup and restore: the path says whose it is."""
    uri = media.put(ADA, b"hello", "text/plain", "output")
    os.rename(tmp_path / ADA, tmp_path / BOB)
    again = Media(str(tmp_path), clock)
    assert content(again, BOB, uri) == b"hello"
    with pytest.raises(NotFoundError):
        again.get(ADA, uri)


def test_what_cannot_be_read_is_left_alone(media, tmp_path, clock, capsys):
    """An error other than "missing" is no corruption."""
    media.put(ADA, b"hello", "text/plain", "output")
    directory = tmp_path / ADA / "media"
    (directory / ("e" * 32)).write_bytes(b"data")
    (directory / ("e" * 32 + ".json")).mkdir()
    again = Media(str(tmp_path), clock)
    with pytest.raises(NotFoundError):
        again.get(ADA, "e" * 32)
    assert len(on_disk(tmp_path)) == 4
    assert "left alone" in capsys.readouterr().err


LITTLE_ROOM = """
import resource, signal, sys
from edged.clock import SystemClock
from edged.errors import NotFoundError, StoreError
from edged.media import Media
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
media = Media(sys.argv[1], SystemClock())
try:
    media.put("ada@example.org", b"data", "text/plain", "output")
except StoreError as error:
    print(error)
"""


def test_a_disk_that_takes_the_data_but_not_its_description_keeps_nothing(tmp_path):
    """The kernel lets no file grow over 60 bytes: the description is longer."""
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_ROOM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ".json: File too large" in done.stdout
    assert on_disk(tmp_path) == []


def test_results_go_on_when_nothing_can_be_stored(tmp_path, clock, capsys):
    """Facts on full disks: calls go on; the log says it once, and once when it is over."""
    media = Media(str(tmp_path), clock, Bounds(item_max=100))
    (tmp_path / ADA).write_bytes(b"in the way of the directory")
    assert media.keep(ADA, b"1", "text/plain", "output") == ""
    assert media.keep(ADA, b"2", "text/plain", "output") == ""
    assert capsys.readouterr().err.count("nothing is kept") == 1
    os.unlink(tmp_path / ADA)
    uri = media.keep(ADA, b"3", "text/plain", "output")
    assert content(media, ADA, uri) == b"3"
    assert capsys.readouterr().err.count("takes files again") == 1
    assert media.keep(ADA, b"4", "text/plain", "output")
    assert capsys.readouterr().err == ""
    assert media.keep(ADA, b"x" * 101, "text/plain", "output") == ""
    assert "over the limit" in capsys.readouterr().err
