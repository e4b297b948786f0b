"""How much the callers' files may take, counted on the real disk."""

import asyncio
import os

import pytest

from edged.errors import StoreError
from edged.workspace.replace import append, replace
from edged.workspace.room import ASKED_MAX, LEAST, LITTLE, OVER_SHARE

QUOTA = 4 << 20
MOST = 512 << 20


def write(place, name, data, caller=None):
    caller = caller or place.ada
    workspace = place.workspace
    route = workspace.route(caller, "s1", name, write=True)
    return replace(workspace.way(caller, route), data)


def left(place, caller=None):
    """Asked until it was counted anew: others may free space on this disk meanwhile."""
    for _ in range(ASKED_MAX + 1):
        most = asyncio.run(place.workspace.room.left(caller or place.ada, MOST))
    return most


@pytest.fixture
def small(make):
    return make(quota=QUOTA)


def test_files_are_written_up_to_the_quota_and_not_beyond(small):
    """README, What holds a tool."""
    write(small, "a", bytes(3 << 20))
    with pytest.raises(StoreError, match=r"/workspace/b: your files take 3 MiB of the 4 MiB"):
        write(small, "b", bytes(2 << 20))
    assert not (small.own / "b").exists()
    write(small, "b", bytes(512 << 10))
    write(small, "a", bytes(3 << 20))
    assert (small.own / "a").stat().st_size == 3 << 20, "in place of itself it takes no more"


def test_append_in_place_is_held_to_the_quota(small):
    """A file over 1 MiB is not written anew."""
    write(small, "log", bytes(3 << 20))
    route = small.workspace.route(small.ada, "s1", "log", write=True)
    way = small.workspace.way(small.ada, route)
    with pytest.raises(StoreError, match=r"tools\.files\.quota of the configuration\): remove"):
        append(way, bytes(2 << 20))
    assert (small.own / "log").stat().st_size == 3 << 20


def test_what_tools_wrote_counts_and_what_was_removed_does_not(small):
    """Commands write beside the file tools, in all of the user's directories."""
    write(small, "a", b"counted before")
    big = small.data / small.ada.user / "home" / "big"
    big.write_bytes(os.urandom(4 << 20))
    # At once, where nobody else frees space on this disk meanwhile.
    with pytest.raises(StoreError, match="your files take 4 MiB"):
        for _ in range(ASKED_MAX + 1):
            write(small, "b", bytes(LEAST))
    big.unlink()
    write(small, "c", bytes(LEAST))


def test_users_have_a_quota_each(small):
    """A user's calls take nothing from another's."""
    write(small, "a", bytes(QUOTA // 2))
    write(small, "a", bytes(QUOTA - 4 * LEAST), small.owner)


def test_empty_files_count_for_their_inodes(make):
    """ext4(5): a card can have space, and no inode left."""
    place = make(quota=16 * LEAST)
    for number in range(16):
        write(place, f"{number}", b"")
    with pytest.raises(StoreError, match="your files take 64 KiB of the 64 KiB"):
        write(place, "more", b"")


def test_file_of_several_names_counts_once(small):
    """link(2): they are one file."""
    path = small.lay("a", os.urandom(3 << 20))
    for number in range(4):
        os.link(path, small.own / f"{number}")
    write(small, "b", bytes(512 << 10))


@pytest.mark.parametrize("depth", [128, 200])
def test_what_hides_below_too_many_directories_counts_as_too_much(small, depth):
    """Nothing is out of the walk's sight."""
    path = "/".join(["d"] * depth)
    small.lay(f"{path}/big", b"x")
    if depth > 128:
        with pytest.raises(StoreError, match=r"/workspace/d/.* cannot be looked into"):
            write(small, "b", b"x")
    else:
        write(small, "b", b"x")


def test_call_may_add_what_is_left_and_a_little_beyond(small):
    """Room to remove files again; far beyond the quota only the owner runs anything."""
    assert LITTLE < left(small) <= QUOTA
    big = small.lay("big", os.urandom(QUOTA))
    assert left(small) == LITTLE
    with big.open("ab") as file:
        file.write(os.urandom(2 * QUOTA // OVER_SHARE + LITTLE))
    with pytest.raises(StoreError, match="of the 4 MiB that they may"):
        left(small)
    big.rename(small.data / "elsewhere")
    os.truncate(small.data / "elsewhere", 0)
    assert left(small) > LITTLE


def test_owner_may_always_run_what_removes_files(make):
    """Someone must be able to."""
    place = make(quota=LEAST)
    place.homes.ready("local")
    (place.data / "local/workspace/big").write_bytes(os.urandom(1 << 20))
    assert left(place, place.owner) == LITTLE


def test_agents_leave_the_reserve_to_the_owner(make):
    """As root's blocks of ext4: the daemon's own state has room, and the owner's way out."""
    place = make(reserve="1000G")
    for act in (lambda: write(place, "a", b"x"), lambda: left(place)):
        with pytest.raises(StoreError, match=r"of which agents leave 1024000 MiB .*: free some"):
            act()
    write(place, "a", b"x", place.owner)
    assert left(place, place.owner) > 0


def test_quota_of_nothing_is_no_bound(make):
    """`quota: 0` in the configuration."""
    place = make(quota=0, reserve=0)
    write(place, "a", bytes(5 << 20))
    assert left(place) == MOST
