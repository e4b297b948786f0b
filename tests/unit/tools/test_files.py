"""The file tools, as an agent calls them (specification, "Filesystem Tools")."""

import asyncio
import base64
import os
from pathlib import Path

import msgspec
import pytest

from edged.errors import InvalidArgumentsError
from edged.identity import Caller
from edged.testing.clock import FakeClock
from edged.tools import files

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.fixture(autouse=True)
def tools(core):
    core.add(*files.TOOLS)


@pytest.fixture
def own(core):
    core.workspace.homes.ready(core.agent.user)
    return Path(core.data) / core.agent.user / "workspace"


@pytest.fixture
def lay(core, own):
    def one(name, content, mode=0o644):
        path = own / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        if os.geteuid() == 0:
            account = core.workspace.homes.account
            for each in (path, path.parent):
                os.chown(each, account.uid, account.gid)
        return path

    return one


@pytest.fixture
def call(core):
    async def one(name, **arguments):
        return await core.call(name, msgspec.json.encode(arguments), core.agent)

    return one


@pytest.fixture
def outside(tmp_path_factory):
    """Not below `tmp_path`, where the daemon's own files are."""
    return tmp_path_factory.mktemp("outside")


def text(result):
    assert not result.is_error, result.for_llm
    return result.content[0].text


# read_file --------------------------------------------------------------------------------


async def test_file_is_read_as_it_is(call, lay):
    """Facts of PicoClaw, 16: #2283; the bytes are the file's own, and nothing beside them."""
    lay("a.txt", "one\\n two\r\n\ttab é 世\n")
    result = await call("read_file", path="a.txt")
    assert [block.text for block in result.content] == ["one\\n two\r\n\ttab é 世\n"]
    assert result.structured is None


@pytest.mark.parametrize("word", ["file_path", "file", "filename", "filepath"])
async def test_path_has_other_words(call, lay, word):
    lay("a.txt", "text")
    assert text(await call("read_file", **{word: "/workspace/a.txt"})) == "text"


async def test_injected_workspace_is_accepted_and_widens_nothing(call, lay):
    """Specification: `"workspace": "/workspace"` is injected; contract, section 8."""
    lay("a.txt", "text")
    assert text(await call("read_file", path="a.txt", workspace="/etc")) == "text"
    result = await call("read_file", path="/etc/hostname", workspace="/etc")
    assert result.is_error


async def test_long_file_is_paged_by_64_kib(call, lay):
    """Specification: maximum 64KB; contract, section 7: it pages itself."""
    data = "".join(f"{number:07}\n" for number in range(20_000))
    lay("a.txt", data)
    offset, parts = 0, []
    while offset is not None:
        result = await call("read_file", path="a.txt", offset=offset)
        parts.append(text(result))
        assert len(parts[-1]) <= 64 << 10
        assert result.structured["size"] == 160_000
        offset = result.structured["next_offset"]
    assert "".join(parts) == data
    first = await call("read_file", path="a.txt")
    assert first.content[1].text == "[bytes 0 to 65535 of 160000: read on with offset=65536]"
    assert first.truncated is None, "it is cut by nobody else"


async def test_part_of_a_file_is_read(call, lay):
    lay("a.txt", "0123456789")
    result = await call("read_file", path="a.txt", offset=2, length=3)
    assert text(result) == "234"
    assert result.structured == {
        "path": "/workspace/a.txt", "size": 10, "offset": 2, "length": 3, "next_offset": 5,
    }  # fmt: skip
    assert text(await call("read_file", path="a.txt", offset=10)).startswith("[offset 10")
    assert text(await call("read_file", path="a.txt", offset=7)) == "789"


async def test_lines_are_read_with_their_numbers(call, lay):
    """Facts of PicoClaw, 6: lines mode, `N|text`."""
    lay("a.txt", "one\ntwo\nthree\nfour\n")
    result = await call("read_file", path="a.txt", start_line=2, max_lines=2)
    assert text(result) == "2|two\n3|three"
    assert result.content[1].text == "[lines 2 to 3: read on with start_line=4]"
    assert result.structured["next_line"] == 4
    assert text(await call("read_file", path="a.txt", mode="lines")).count("|") == 4
    result = await call("read_file", path="a.txt", start_line=9)
    assert result.is_error
    assert "fewer than 9 lines" in result.for_llm


async def test_long_line_is_read_on_by_bytes(call, lay):
    lay("a.txt", "x" * 70_000 + "\nend\n")
    result = await call("read_file", path="a.txt", start_line=1)
    assert "line 1 is not whole" in result.content[1].text
    rest = await call("read_file", path="a.txt", offset=result.structured["next_offset"])
    assert text(result)[2:] + text(rest) == "x" * 70_000 + "\nend\n"
    assert text(await call("read_file", path="a.txt", start_line=2)) == "2|end"


@pytest.mark.parametrize(
    "arguments",
    [
        {"start_line": 1, "offset": 1},
        {"mode": "lines", "length": 1},
        {"mode": "bytes", "max_lines": 1},
        {"encoding": "base64", "start_line": 1},
        {"offset": -1},
        {"length": 0},
        {"start_line": 0},
    ],
)
async def test_inputs_that_contradict_are_refused(call, lay, arguments):
    lay("a.txt", "text")
    with pytest.raises(InvalidArgumentsError):
        await call("read_file", path="a.txt", **arguments)


async def test_binary_is_refused_and_read_as_base64(call, lay):
    """Facts of PicoClaw, 16: #1049."""
    lay("a.png", PNG)
    for arguments in ({}, {"start_line": 1}, {"offset": 8}):
        result = await call("read_file", path="a.png", **arguments)
        assert result.is_error
        assert "is a PNG picture, no text" in result.for_llm
    result = await call("read_file", path="a.png", encoding="base64", length=20)
    assert base64.b64decode(text(result)) == PNG[:20]
    rest = await call("read_file", path="a.png", encoding="base64", offset=20)
    assert base64.b64decode(text(rest)) == PNG[20:]


async def test_text_that_is_not_utf8_is_shown(call, lay):
    lay("a.txt", "Grüße".encode("latin-1"))
    assert text(await call("read_file", path="a.txt")) == "Gr\ufffd\ufffde"


async def test_empty_file_and_missing_file_are_told_apart(call, lay):
    lay("a.txt", "")
    assert text(await call("read_file", path="a.txt")) == "[/workspace/a.txt is empty]"
    assert (
        text(await call("read_file", path="a.txt", mode="lines")) == "[/workspace/a.txt is empty]"
    )
    result = await call("read_file", path="b.txt")
    assert result.is_error
    assert "/workspace/b.txt: No such file" in result.for_llm


async def test_directory_is_not_read(call, own):
    for path in (".", "/officer/user"):
        result = await call("read_file", path=path)
        assert "is a directory: list_dir" in result.for_llm


async def test_media_are_read(call, core):
    """Contract, section 6; facts of PicoClaw, 16: #2426."""
    uri = core.media.put(core.agent.user, b"kept output", "text/plain", "out")
    assert text(await call("read_file", path=uri)) == "kept output"
    other = core.media.put("bob@example.org", b"secret", "text/plain", "out")
    assert (await call("read_file", path=other)).is_error


# write_file -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["", "plain", "two\nlines\n", r"back\nslash \t \\ \u00e9", "\r\n\0\x7f", "é世😀\u2028"],
)
async def test_bytes_are_written_exactly(call, own, content):
    """Facts of PicoClaw, 16: #2283, a backslash and an n became a line end."""
    await call("write_file", path="a/b.txt", content=content)
    assert (own / "a" / "b.txt").read_bytes() == content.encode()


async def test_write_creates_and_replaces(call, own):
    """Specification: "Create or overwrite files within workspace"."""
    first = await call("write_file", path="a.txt", content="one")
    assert text(first) == "created /workspace/a.txt, 3 bytes"
    again = await call("write_file", path="a.txt", content="three", overwrite=True)
    assert text(again) == "replaced /workspace/a.txt, 5 bytes"
    assert again.structured == {"path": "/workspace/a.txt", "bytes": 5, "created": False}
    refused = await call("write_file", path="a.txt", content="x", overwrite=False)
    assert refused.is_error
    assert (own / "a.txt").read_text() == "three"


@pytest.mark.parametrize("word", ["text", "data", "contents"])
async def test_content_has_other_words(call, own, word):
    """Contract, section 8: `text`/`content`."""
    for tool in ("write_file", "append_file"):
        await call(tool, path="a.txt", **{word: "x"})
    assert (own / "a.txt").read_text() == "xx"


async def test_bytes_that_are_no_text_are_written_by_base64(call, own):
    await call(
        "write_file", path="a.png", content=base64.b64encode(PNG).decode(), encoding="base64"
    )
    assert (own / "a.png").read_bytes() == PNG
    for content in ("!", "YQ", "YQ==YQ==", "é"):
        result = await call("write_file", path="a.png", content=content, encoding="base64")
        assert result.for_llm.startswith("content: is not base64: write A-Z,"), content


async def test_writes_stay_inside(call, own, tmp_path):
    (own / "way").symlink_to(tmp_path)
    for path in (
        "../../../x",
        "/etc/x",
        "way/x",
        "/officer/user/tools/x",
        "/officer/x",
        "media://1",
    ):
        result = await call("write_file", path=path, content="x")
        assert result.is_error, path
    assert not (tmp_path / "x").exists()


# append_file ------------------------------------------------------------------------------


async def test_append_creates_and_adds(call, own):
    assert text(await call("append_file", path="a.txt", content="one")).startswith("created")
    result = await call("append_file", path="a.txt", content="\ntwo\n")
    assert text(result) == "appended 5 bytes to /workspace/a.txt, 8 bytes"
    assert (own / "a.txt").read_bytes() == b"one\ntwo\n"


async def test_append_to_a_large_file_does_not_write_it_anew(call, lay):
    path = lay("log", b"x" * (files.APPEND_MAX + 1))
    inode = path.stat().st_ino
    await call("append_file", path="log", content="end")
    assert path.stat().st_ino == inode
    assert path.read_bytes()[-4:] == b"xend"


async def test_many_appends_at_once_lose_nothing(call, own):
    """One after the other for one file, whoever comes when."""
    await asyncio.gather(*(call("append_file", path="a.txt", content=f"{n}\n") for n in range(40)))
    assert sorted(map(int, (own / "a.txt").read_text().split())) == list(range(40))


async def test_content_that_waits_is_bounded(core, call, own):
    """A board has 512 MB; of agents the dispatcher takes less than that at once."""
    content = "x" * (12 << 20)
    raw = msgspec.json.encode({"path": "a", "content": content})
    owner = Caller(core.agent.user, "owner", "", "unix", "uid 0")
    results = await asyncio.gather(*(core.call("write_file", raw, owner) for _ in range(5)))
    told = [result.for_llm for result in results if result.is_error]
    assert len(told) == 3
    assert all("MiB wait to be written" in one for one in told)
    assert (own / "a").stat().st_size == 12 << 20
    assert text(await call("write_file", path="a", content="y"))


# edit_file --------------------------------------------------------------------------------


async def test_edit_answers_with_the_diff(call, lay):
    path = lay("a.txt", "one\ntwo\nthree\n", 0o640)
    result = await call("edit_file", path="a.txt", old_text="two", new_text="2")
    assert text(result) == (
        "--- /workspace/a.txt\n+++ /workspace/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    )
    assert result.structured == {"path": "/workspace/a.txt", "bytes": 12, "replacements": 1}
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("one\n2\nthree\n", 0o640)


@pytest.mark.parametrize(
    ("old", "new"),
    [("old_string", "new_string"), ("oldText", "newText"), ("old_str", "new_str"), ("search", "replace")],
)  # fmt: skip
async def test_passages_have_other_words(call, lay, old, new):
    path = lay("a.txt", "one")
    await call("edit_file", **{"path": "a.txt", old: "one", new: "two"})
    assert path.read_text() == "two"


async def test_edit_that_is_not_clear_changes_nothing(call, lay):
    path = lay("a.txt", "x y x")
    for arguments, told in (
        ({"old_text": "x", "new_text": "z"}, "occurs 2 times"),
        ({"old_text": "q", "new_text": "z"}, "does not occur"),
    ):
        result = await call("edit_file", path="a.txt", **arguments)
        assert result.is_error
        assert told in result.for_llm
    with pytest.raises(InvalidArgumentsError, match="nothing would change"):
        await call("edit_file", path="a.txt", old_text="x", new_text="x")
    assert path.read_text() == "x y x"
    await call("edit_file", path="a.txt", old_text="x", new_text="z", replace_all=True)
    assert path.read_text() == "z y z"


async def test_binary_and_huge_files_are_not_edited(call, lay):
    lay("a.png", PNG)
    assert (
        "no text to edit"
        in (await call("edit_file", path="a.png", old_text="PNG", new_text="x")).for_llm
    )
    path = lay("huge", b"")
    os.truncate(path, files.EDIT_MAX + 1)
    result = await call("edit_file", path="huge", old_text="a", new_text="b")
    assert "edits end at 4 MiB" in result.for_llm


# list_dir ---------------------------------------------------------------------------------


async def test_directory_is_listed_by_type_and_name(call, lay, own):
    """Facts of PicoClaw, 6: `DIR:  name`, `FILE: name`."""
    lay("b.txt", "12345")
    lay("a/c.txt", "")
    (own / "link").symlink_to("b.txt")
    os.mkfifo(own / "pipe")
    wanted = "DIR:  a\nFILE: b.txt\nLINK: link -> b.txt\nSPECIAL: pipe"
    for path in (
        {},
        {"path": "."},
        {"path": "/workspace"},
        {"directory": "/officer/user/workspace"},
    ):
        assert text(await call("list_dir", **path)) == wanted


async def test_details_tell_sizes_and_times(call, lay):
    path = lay("b.txt", "12345")
    os.utime(path, (0, 1_600_000_000))
    result = await call("list_dir", details=True)
    assert text(result) == "FILE: b.txt (5 bytes, 2020-09-13T12:26:40.000Z)"
    [entry] = result.structured["entries"]
    assert entry == {
        "name": "b.txt", "type": "file", "size": 5, "modified": "2020-09-13T12:26:40.000Z",
    }  # fmt: skip


async def test_long_directory_is_paged(call, lay, own):
    for number in range(25):
        lay(f"{number:02}", "")
    offset, names = 0, []
    while offset is not None:
        result = await call("list_dir", limit=10, offset=offset)
        names += text(result).split("\n")
        offset = result.structured["next_offset"] if result.structured else None
    assert names == [f"FILE: {number:02}" for number in range(25)]


async def test_names_are_shown_on_one_line(call, own):
    for name in (b"two\nlines", b"\xff", "é".encode()):
        os.close(os.open(os.fsencode(own) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    rows = text(await call("list_dir")).split("\n")
    assert rows == ["FILE: 'two\\nlines'", "FILE: é", "FILE: '\\udcff'"]


async def test_empty_directory_and_file_are_told(call, lay, own):
    assert text(await call("list_dir")) == "[/workspace is empty]"
    lay("a.txt", "")
    assert "is a file: read_file" in (await call("list_dir", path="a.txt")).for_llm


async def test_directories_of_the_caller_are_listed(call, own):
    """Contract, section 10: what is at /officer; and the skills."""
    assert text(await call("list_dir", path="/officer/user")) == (
        "DIR:  files\nDIR:  home\nDIR:  skills\nDIR:  tools\nDIR:  workspace"
    )
    assert (
        text(await call("list_dir", path="/officer"))
        == "DIR:  data\nDIR:  skills\nDIR:  tools\nDIR:  user"
    )


async def test_list_that_is_kept_is_never_an_old_one(call, lay, own, core, monkeypatch):
    """inode(7): names come and go with the directory's time."""
    clock = FakeClock(now=own.stat().st_mtime + 1_000)
    services = msgspec.structs.replace(core.dispatcher.services, clock=clock)
    core.dispatcher.services = services
    for number in range(5):
        lay(f"{number}", "")
        # As if it had been so for long: the list is kept then.
        os.utime(own, (0, 1_000 + number))
        for _ in range(2):
            assert text(await call("list_dir")).count("FILE") == number + 1


# All --------------------------------------------------------------------------------------


async def test_pattern_of_the_owner_reads_outside_by_a_thread(core, outside, call):
    (outside / "log").mkdir()
    (outside / "log" / "a.log").write_text("line\n")
    core.workspace.settings = msgspec.structs.replace(
        core.workspace.settings, read=[f"{outside}/log/*"]
    )
    assert text(await call("read_file", path=f"{outside}/log/a.log")) == "line\n"
    assert text(await call("list_dir", path=f"{outside}/log")) == "FILE: a.log"
    assert (await call("write_file", path=f"{outside}/log/b.log", content="x")).is_error


async def test_granted_file_is_written_again_and_again(core, outside, call):
    """A replaced file is another inode: the grant goes on with it, and with nobody else's."""
    path = outside / "conf"
    path.write_text("1")
    asked = core.policy.request(core.agent, "", str(path), write=True)
    core.policy.answer(asked.id, "session", core.owner)
    for value in ("2", "3"):
        assert text(await call("write_file", path=str(path), content=value))
    assert text(await call("edit_file", path=str(path), old_text="3", new_text="4"))
    assert path.read_text() == "4"
    path.unlink()
    path.write_text("another's")
    assert (
        "something else was put there"
        in (await call("write_file", path=str(path), content="5")).for_llm
    )


async def test_grant_once_is_used_up_by_one_write(core, outside, call):
    path = outside / "new"
    asked = core.policy.request(core.agent, "", str(path), write=True)
    core.policy.answer(asked.id, "once", core.owner)
    results = await asyncio.gather(
        *(call("write_file", path=str(path), content=str(n)) for n in range(5))
    )
    assert [result.is_error for result in results].count(False) == 1
