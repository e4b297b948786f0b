"""Which path leads where, who may go there, and how it is opened."""

import os
import socket

import pytest

from edged.errors import DeniedError, InvalidArgumentsError, NotFoundError
from edged.workspace import Place


@pytest.mark.parametrize(
    ("path", "shown", "inner"),
    [
        ("notes.txt", "/workspace/notes.txt", "workspace/notes.txt"),
        ("/workspace/notes.txt", "/workspace/notes.txt", "workspace/notes.txt"),
        ("/officer/user/workspace/a", "/workspace/a", "workspace/a"),
        (".", "/workspace", "workspace"),
        ("/workspace/", "/workspace", "workspace"),
        ("a/../b", "/workspace/b", "workspace/b"),
        ("../files/a", "/officer/user/files/a", "files/a"),
        ("/officer/user/home/x", "/officer/user/home/x", "home/x"),
        ("~/x", "/officer/user/home/x", "home/x"),
        ("//workspace//a", "/workspace/a", "workspace/a"),
    ],
)
def test_own_directories_are_known_by_the_names_of_tools(place, path, shown, inner):
    """Contract, section 8: relative to the workspace; `/workspace` and `/officer/user` all over."""
    found = place.workspace.place(place.ada, path)
    assert (found.shown, found.host) == (shown, f"{place.data}/{place.ada.user}/{inner}")
    assert found.write


def test_path_on_the_host_is_shown_as_tools_know_it(place):
    """Facts of PicoClaw, 16: #2107, an absolute path inside the workspace is allowed."""
    found = place.workspace.place(place.ada, f"{place.own}/a/b")
    assert (found.shown, found.inner, found.write) == ("/workspace/a/b", "a/b", True)


def test_directories_of_another_user_are_outside(place):
    """Contract, section 3: that user's directories."""
    path = f"{place.data}/bob@example.org/workspace/a"
    assert place.workspace.place(place.ada, path) == Place(path, path)
    with pytest.raises(DeniedError, match="edged's own"):
        place.read(path)


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000])
def test_what_is_no_path_is_refused(place, path):
    with pytest.raises(InvalidArgumentsError):
        place.workspace.place(place.ada, path)


def test_file_of_the_workspace_is_read(place):
    place.lay("a/notes.txt", b"text")
    assert place.read("a/notes.txt") == place.read("/workspace/a/notes.txt") == b"text"
    with pytest.raises(NotFoundError, match="/workspace/missing"):
        place.read("missing")


@pytest.mark.parametrize("target", ["../../../../outside/secret", "absolute"])
def test_link_that_leads_out_is_refused(place, target):
    """Facts of PicoClaw, 16: #1526, `cat leak/secret` through a link."""
    (place.own / "leak").symlink_to(place.outside if target == "absolute" else target)
    with pytest.raises(DeniedError, match="link"):
        place.read("leak/secret" if target == "absolute" else "leak")


def test_link_of_a_tool_by_the_tools_names_is_followed(place):
    """Inside a sandbox `/workspace/a` is a path like any other; here it must lead there too."""
    place.lay("a/notes.txt", b"text")
    (place.own / "link").symlink_to("/workspace/a")
    assert place.read("link/notes.txt") == b"text"


def test_path_outside_is_refused_with_the_way_to_ask(place):
    with pytest.raises(DeniedError, match="request_permission"):
        place.read(f"{place.outside}/secret")


def test_refusal_does_not_tell_whether_a_file_is_there(place):
    there, not_there = f"{place.outside}/secret", f"{place.outside}/nothing"
    told = []
    for path in (there, not_there):
        with pytest.raises(DeniedError) as caught:
            place.read(path)
        told.append(str(caught.value).replace(path, ""))
    assert told[0] == told[1]


def test_patterns_of_the_owner_widen_what_is_reached(make, tmp_path):
    place = make(read=[f"{tmp_path}/0/outside/*"], deny=["*.key", "/workspace/hidden"])
    (place.outside / "a.key").write_text("key")
    (place.outside / "link").symlink_to("a.key")
    assert place.read(f"{place.outside}/secret") == b"secret"
    for name in ("a.key", "link"):
        with pytest.raises(DeniedError, match=r"tools\.files\.deny"):
            place.read(f"{place.outside}/{name}")
    with pytest.raises(DeniedError, match=r"tools\.files\.write"):
        place.workspace.route(place.ada, "s1", f"{place.outside}/new", write=True)
    place.lay("hidden/a", b"x")
    place.lay("private.key", b"x")
    (place.own / "way").symlink_to("hidden/a")
    for name in ("hidden/a", "private.key", "way"):
        with pytest.raises(DeniedError, match=r"tools\.files\.deny"):
            place.read(name)


def test_data_directory_is_reached_by_no_pattern(make):
    """Tokens and secrets lie there."""
    place = make(read=["/"], write=["/"])
    (place.data / "token").write_text("edged_x")
    (place.outside / "way").symlink_to(place.data / "token")
    for path in (place.data / "token", place.outside / "way", place.data):
        with pytest.raises(DeniedError, match="edged's own"):
            place.read(str(path))


def test_tools_are_read_and_not_written(place):
    with pytest.raises(DeniedError, match="read-only"):
        place.workspace.route(place.ada, "s1", "/officer/user/tools/x/TOOL.md", write=True)


def test_special_files_are_refused_at_once(make, tmp_path):
    """A pipe without a writer would be waited for without end (fifo(7))."""
    place = make(read=["/dev", f"{tmp_path}/0/outside"])
    os.mkfifo(place.own / "pipe")
    place.give(place.own / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.outside / "socket"))
        os.mkfifo(place.outside / "pipe")
        for path in ("pipe", place.outside / "pipe", place.outside / "socket", "/dev/zero"):
            with pytest.raises(DeniedError, match="files and directories only"):
                place.read(str(path))


def test_media_are_read_and_not_written(place, tmp_path):
    """Contract, section 6: file tools take `media://` too; 16: #2426."""
    file = tmp_path / "medium"
    file.write_text("picture")
    place.media_files["media://1"] = str(file)
    assert place.read("media://1") == b"picture"
    with pytest.raises(DeniedError, match="nobody changes"):
        place.workspace.route(place.ada, "s1", "media://1", write=True)


def test_grant_opens_what_it_names_and_what_is_below(place):
    (place.outside / "deep").mkdir()
    (place.outside / "deep" / "file").write_text("deep")
    asked = place.policy.request(place.ada, "s1", str(place.outside))
    place.policy.answer(asked.id, "session", place.owner)
    assert place.read(f"{place.outside}/secret") == b"secret"
    assert place.read(f"{place.outside}/deep/file") == b"deep"
    with pytest.raises(DeniedError):
        place.workspace.route(place.ada, "s1", f"{place.outside}/new", write=True)


def test_grant_is_of_the_directory_and_not_of_its_name(place, tmp_path):
    """Facts of PicoClaw, 16: #3081, a directory swapped between approval and use."""
    asked = place.policy.request(place.ada, "s1", str(place.outside))
    place.policy.answer(asked.id, "session", place.owner)
    place.outside.rename(tmp_path / "moved")
    place.outside.mkdir()
    (place.outside / "secret").write_text("another")
    with pytest.raises(DeniedError, match="something else was put there"):
        place.read(f"{place.outside}/secret")


@pytest.mark.parametrize("write", [False, True])
def test_grant_of_what_is_not_there_is_not_of_what_is_put_there(place, write):
    """The agent renames a file that only root may read to the name that was granted."""
    path = place.outside / "report"
    asked = place.policy.request(place.ada, "s1", str(path), write=write)
    place.policy.answer(asked.id, "session", place.owner)
    with pytest.raises(NotFoundError):
        place.read(str(path))
    (place.outside / "secret").rename(path)
    with pytest.raises(DeniedError, match="put there by another since: ask again"):
        place.read(str(path))


def test_grant_once_is_used_up_by_one_use(place):
    """Facts of PicoClaw, 7: once was never consumed there."""
    path = f"{place.outside}/secret"
    place.policy.answer(place.policy.request(place.ada, "s1", path).id, "once", place.owner)
    assert place.read(path) == b"secret"
    with pytest.raises(DeniedError, match="request_permission"):
        place.read(path)


def test_grant_once_is_given_back_where_nothing_came_of_it(place):
    path = place.outside / "secret"
    place.policy.answer(place.policy.request(place.ada, "s1", str(path)).id, "once", place.owner)
    path.rename(place.outside / "away")
    with pytest.raises(NotFoundError):
        place.read(str(path))
    (place.outside / "away").rename(path)
    assert place.read(str(path)) == b"secret"
