"""A file is written whole or not at all; its mode, owner and attributes survive."""

import os
import stat

import pytest

from edged.errors import BusyError, DeniedError, InvalidArgumentsError, NotFoundError
from edged.workspace import replace as writing
from tests.unit.workspace.conftest import ADA


def write(place, path, data, *, caller=None, **options):
    caller = caller or place.ada
    route = place.workspace.route(caller, caller.session, path, write=True)
    return writing.replace(place.workspace.way(caller, route), data, **options)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_file_is_its_accounts_and_open_to_whom_its_directory_is(place):
    """Contract, section 10: the directories are the tools' account's, users' alone."""
    written = write(place, "deep/er/file", b"text")
    path = place.own / "deep" / "er" / "file"
    assert path.read_bytes() == b"text"
    assert (written.created, written.size, written.inode) == (True, 4, path.stat().st_ino)
    account = place.homes.account
    for one in (path, path.parent, path.parent.parent):
        assert (one.stat().st_uid, one.stat().st_gid) == (account.uid, account.gid)
    top = mode(place.own)
    assert (mode(path), mode(path.parent)) == (top & 0o664, top & 0o775)
    assert sorted(os.listdir(path.parent)) == ["file"]


@pytest.mark.parametrize("bits", [0o600, 0o640, 0o755, 0o660])
def test_mode_survives_an_overwrite(place, bits):
    """Facts of PicoClaw, 6: there it became 0600."""
    path = place.lay("file", b"old", bits)
    assert not write(place, "file", b"new").created
    assert (path.read_bytes(), mode(path)) == (b"new", bits)


def test_owner_survives_an_overwrite_or_nothing_is_written(place):
    """Root keeps another's file another's; a plain user can not, and says so."""
    path = place.lay("file", b"old", 0o666)
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
        write(place, "file", b"new")
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
        assert path.read_bytes() == b"new"
    else:
        before = path.stat()
        write(place, "file", b"new")
        assert (path.stat().st_uid, path.stat().st_gid) == (before.st_uid, before.st_gid)


def test_attributes_survive_an_overwrite(place):
    path = place.lay("file", b"old")
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        # A file system without them has nothing to keep.
        return
    write(place, "file", b"new")
    assert os.getxattr(path, "user.note") == b"kept"


def test_set_user_id_is_never_given(place):
    path = place.lay("file", b"old", 0o4755)
    write(place, "file", b"new")
    assert mode(path) == 0o755


def test_file_that_may_not_be_written_is_not_replaced(place):
    path = place.lay("file", b"old", 0o444)
    with pytest.raises(DeniedError, match="Permission denied"):
        write(place, "file", b"new")
    assert path.read_bytes() == b"old"


def test_link_is_written_through_and_stays_a_link(place):
    target = place.lay("dir/target", b"old")
    (place.own / "link").symlink_to("dir/target")
    (place.own / "known").symlink_to("/workspace/dir/target")
    write(place, "link", b"new")
    assert (target.read_bytes(), (place.own / "link").is_symlink()) == (b"new", True)
    write(place, "known", b"newer")
    assert (target.read_bytes(), (place.own / "known").is_symlink()) == (b"newer", True)


def test_link_into_another_own_directory_is_written_through(place):
    other = place.data / place.ada.user / "files" / "target"
    other.write_bytes(b"old")
    place.give(other)
    (place.own / "link").symlink_to("/officer/user/files/target")
    write(place, "link", b"new")
    assert other.read_bytes() == b"new"


@pytest.mark.parametrize("target", ["/officer/user/tools", "/officer/data", "outside"])
def test_link_leads_no_write_where_none_may_go(place, target):
    (place.own / "way").symlink_to(str(place.outside) if target == "outside" else target)
    with pytest.raises(DeniedError):
        write(place, "way/new", b"x")
    with pytest.raises(DeniedError):
        write(place, "way/deeper/new", b"x")
    assert sorted(os.listdir(place.outside)) == ["secret"]
    assert os.listdir(place.data / place.ada.user / "tools") == []
    assert os.listdir(place.data / place.ada.user / "data") == []


def test_denied_patterns_hold_behind_links(make):
    place = make(deny=["/workspace/hidden", "*.key"])
    place.lay("hidden/file", b"old")
    (place.own / "way").symlink_to("hidden")
    for path in ("way/file", "way/new", "hidden/new", "a.key"):
        with pytest.raises(DeniedError, match="deny"):
            write(place, path, b"x")
    assert (place.own / "hidden" / "file").read_bytes() == b"old"


def test_link_to_nothing_is_not_filled(place):
    (place.own / "link").symlink_to("missing")
    with pytest.raises(InvalidArgumentsError, match="link to missing"):
        write(place, "link", b"x")
    assert not (place.own / "missing").exists()


def test_without_overwrite_a_file_that_is_there_stays(place):
    place.lay("file", b"old")
    with pytest.raises(InvalidArgumentsError, match="overwrite=true"):
        write(place, "file", b"new", overwrite=False)
    assert (place.own / "file").read_bytes() == b"old"
    assert write(place, "other", b"new", overwrite=False).created


def test_without_create_a_missing_file_stays_missing(place):
    with pytest.raises(NotFoundError):
        write(place, "deep/file", b"new", create=False)
    assert os.listdir(place.own) == []


def test_directory_and_special_files_are_not_replaced(place):
    place.lay("dir/file")
    os.mkfifo(place.own / "pipe")
    place.give(place.own / "pipe")
    with pytest.raises(InvalidArgumentsError, match="is a directory: name a file in it"):
        write(place, "dir", b"x")
    with pytest.raises(InvalidArgumentsError, match="is a directory: name a file in it"):
        write(place, ".", b"x")
    with pytest.raises(DeniedError, match="a pipe"):
        write(place, "pipe", b"x")
    with pytest.raises(NotFoundError, match="Not a directory: something above it is a file"):
        write(place, "dir/file/x", b"x")


def test_change_by_another_is_not_overwritten(place):
    """An edit is of what was read."""
    path = place.lay("file", b"old")
    seen = path.stat()
    path.write_bytes(b"other")
    with pytest.raises(BusyError, match="changed by another"):
        write(place, "file", b"new", expected=seen)
    assert (path.read_bytes(), os.listdir(place.own)) == (b"other", ["file"])


def test_stopped_write_changes_nothing(place):
    path = place.lay("file", b"old")
    with pytest.raises(writing.StoppedError):
        write(place, "file", b"new", stopped=lambda: True)
    assert (path.read_bytes(), os.listdir(place.own)) == (b"old", ["file"])


def test_what_a_crash_left_of_a_write_is_cleared_by_the_next(place):
    """Between linkat(2) and rename(2) a whole file has a hidden name."""
    place.lay("file", b"old")
    write(place, "file", b"1")
    hidden = ".edged-8c9f3610.new"  # CRC-32 of `file`
    place.lay(hidden, b"left")
    write(place, "file", b"2")
    assert os.listdir(place.own) == ["file"]


def test_granted_directory_is_written_as_its_owners(place):
    """Root's new file in a directory of Ada's is Ada's."""
    if os.geteuid() == 0:
        os.chown(place.outside, 12345, 54321)
    asked = place.policy.request(place.ada, "s1", str(place.outside), write=True)
    place.policy.answer(asked.id, "session", place.owner)
    write(place, f"{place.outside}/a/new", b"x")
    above = place.outside.stat()
    for path in (place.outside / "a", place.outside / "a" / "new"):
        assert (path.stat().st_uid, path.stat().st_gid) == (above.st_uid, above.st_gid)


def granted(place, path):
    asked = place.policy.request(place.ada, "s1", str(path), write=True)
    return place.policy.answer(asked.id, "session", place.owner)


@pytest.mark.parametrize("name", ["report", "new/deep/report"])
def test_granted_file_that_was_not_there_is_the_one_that_its_caller_made(place, name):
    """Written again and read, until another is put in its place."""
    path = place.outside / name
    granted(place, path)
    way = place.workspace.way(ADA, place.workspace.route(ADA, "s1", str(path), write=True))
    written = writing.replace(way, b"one")
    place.workspace.rebind(way, written.device, written.inode)
    way = place.workspace.way(ADA, place.workspace.route(ADA, "s1", str(path), write=True))
    written = writing.replace(way, b"two")
    place.workspace.rebind(way, written.device, written.inode)
    assert place.read(str(path)) == b"two"
    (place.outside / "secret").rename(path)
    for act in (lambda: place.read(str(path)), lambda: write(place, str(path), b"x")):
        with pytest.raises(DeniedError, match="something else was put there"):
            act()
    assert path.read_bytes() == b"secret"


def test_granted_directory_that_was_not_there_is_the_one_that_its_caller_made(place):
    top = place.outside / "new"
    granted(place, top)
    for name in ("a", "b/c", "a"):
        way = place.workspace.way(
            ADA, place.workspace.route(ADA, "s1", f"{top}/{name}", write=True)
        )
        written = writing.replace(way, b"x")
        place.workspace.rebind(way, written.device, written.inode)
    assert place.read(f"{top}/a") == place.read(f"{top}/b/c") == b"x"
    top.rename(place.outside / "moved")
    top.mkdir()
    (place.outside / "secret").rename(top / "a")
    with pytest.raises(DeniedError, match="something else was put there"):
        place.read(f"{top}/a")


@pytest.mark.parametrize("name", ["report", "new", "new/deep/report"])
def test_what_another_put_where_nothing_was_is_not_written(place, name):
    path = place.outside / name
    granted(place, path)
    top = place.outside / name.split("/")[0]
    (place.outside / "secret").rename(top) if top == path else top.mkdir()
    with pytest.raises(DeniedError, match="put there by another since"):
        write(place, str(path), b"x")
    if top == path:
        assert path.read_bytes() == b"secret"
    else:
        assert os.listdir(top) == []


def test_what_another_is_quicker_to_make_is_not_written(place, monkeypatch):
    """Between the look at what is missing and the directory that is made for it."""
    granted(place, place.outside / "new" / "report")
    deepest = writing._deepest

    def slow(*given):
        found = deepest(*given)
        (place.outside / "new").mkdir()
        return found

    monkeypatch.setattr(writing, "_deepest", slow)
    with pytest.raises(DeniedError, match="put there by another since"):
        write(place, f"{place.outside}/new/report", b"x")
    assert os.listdir(place.outside / "new") == []


@pytest.mark.parametrize("below", ["", "sub"])
@pytest.mark.parametrize("laid", ["full", "empty", "another's"])
def test_a_directory_that_is_swapped_once_it_was_made_is_left_alone(
    place, monkeypatch, below, laid
):
    """Root gave the agent a directory of root's own, which it had renamed to the new one's name."""
    top = place.outside / below
    top.mkdir(exist_ok=True)
    keys = top / "keys"
    keys.mkdir(mode=0o700)
    if laid == "full":
        (keys / "key").write_text("secret")
        keys.chmod(0o1700)
    if os.geteuid() == 0:
        os.chown(top, 12345, 54321)
        if laid == "another's":
            os.chown(keys, 12346, 0)
            keys.chmod(0o1700)
    before = keys.stat()
    granted(place, place.outside if below else top / "out")
    mkdir = os.mkdir

    def swapped(name, mode, *, dir_fd):
        mkdir(name, mode, dir_fd=dir_fd)
        if name == "out":
            os.rename("out", "was", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            os.rename("keys", "out", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapped)
    with pytest.raises(DeniedError):
        write(place, str(top / "out" / "report"), b"x")
    after = (top / "out").stat()
    for fact in ("st_ino", "st_uid", "st_gid", "st_mode"):
        assert getattr(after, fact) == getattr(before, fact)
    assert os.listdir(top / "out") == (["key"] if laid == "full" else [])


@pytest.mark.parametrize("mode", [0o755, 0o2775, 0o3777, 0o700])
def test_new_directories_are_their_parents_owners_with_what_that_permits(place, mode):
    """Also in a shared one, whose group goes on (mkdir(2), S_ISGID)."""
    top = place.outside / "top"
    top.mkdir()
    if os.geteuid() == 0:
        os.chown(top, 12345, 54321)
    top.chmod(mode)
    granted(place, place.outside)
    write(place, str(top / "a" / "b" / "file"), b"x")
    above = top.stat()
    for one in (top / "a", top / "a" / "b"):
        found = one.stat()
        assert (found.st_uid, found.st_gid) == (above.st_uid, above.st_gid)
        assert stat.S_IMODE(found.st_mode) == mode & 0o2775


def test_append_adds_in_place_and_is_cut_back_where_it_fails(place):
    """write(2): a disk that fills up takes a part first."""
    path = place.lay("log", b"old")
    inode = path.stat().st_ino
    route = place.workspace.route(place.ada, "s1", "log", write=True)
    way = place.workspace.way(place.ada, route)
    assert writing.append(way, b"+new").size == 7
    assert (path.read_bytes(), path.stat().st_ino) == (b"old+new", inode)
