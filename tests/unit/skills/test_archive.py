"""Hostile archives, made on the spot: each is refused as a whole (section 5, 45)."""

import io
import os
import stat
import struct
import tarfile
import zipfile

import pytest

from edged.errors import RemoteProtocolError
from edged.skills import archive
from edged.skills.stage import FILE_MAX, FILES_MAX, Stage, digest_of
from tests.unit.skills.conftest import files_of, sha, skill_md, tarred, zipped


@pytest.fixture
def stage(tmp_path):
    return Stage(str(tmp_path / "stage"))


def unpack(data, stage, kind="zip", inside=""):
    archive.unpack(io.BytesIO(data), kind, stage, inside)


def written(stage):
    return {
        os.path.relpath(os.path.join(folder, one), stage.path)
        for folder, _, found in os.walk(stage.path)
        for one in found
    }


@pytest.mark.parametrize("top", ["", "pdf-tools"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_whole_folder_is_unpacked_with_or_without_a_wrapper(stage, kind, top):
    """Picoclaw #1245: templates were left out; section 5, 43: a wrapper folder."""
    files = files_of()
    wrapped = {f"{top}/{name}" if top else name: data for name, data in files.items()}
    unpack(zipped(wrapped) if kind == "zip" else tarred(wrapped), stage, kind)
    assert stage.files == {name: sha(data) for name, data in files.items()}
    assert written(stage) == set(files)
    run = os.stat(f"{stage.path}/scripts/go.sh").st_mode
    assert stat.S_IMODE(run) == 0o755
    assert stat.S_IMODE(os.stat(f"{stage.path}/SKILL.md").st_mode) == 0o644


def test_one_folder_of_a_repository_is_taken(stage):
    """Whatever the repository has elsewhere, be it links or names that nobody writes."""
    link = tarfile.TarInfo("kit-abc/docs/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    odd = tarfile.TarInfo("kit-abc/odd\n\x01name")
    files = {f"skills/pdf/{name}": data for name, data in files_of().items()}
    unpack(tarred(files, "kit-abc", [(link, b""), (odd, b"")]), stage, "tar", "skills/pdf")
    assert set(stage.files) == set(files_of())


BAD_NAMES = [
    "../evil",
    "a/../../evil",
    "/etc/evil",
    "a/./b",
    "a//b",
    "..\\evil",
    "C:\\evil",
    "a\nb",
    "a\u202eb",
    "x" * 256,
    "/".join("abcdefghij"),
    "skill.md",
    "SCRIPTS/go.sh",
    "Scripts/other.sh",
    "SKILL.md/inside",
]


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_name_that_leads_out_or_collides_refuses_all(stage, kind, name, tmp_path):
    """Section 5, 45; case collisions on file systems that fold them."""
    files = {**files_of(), name: b"evil"}
    with pytest.raises(RemoteProtocolError, match="the archive is refused|no SKILL.md"):
        unpack(zipped(files) if kind == "zip" else tarred(files), stage, kind)
    assert not (tmp_path / "evil").exists()
    assert not os.path.exists("/etc/evil")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO, stat.S_IFBLK])
def test_zip_with_a_link_or_device_is_refused_before_anything_is_written(stage, kind):
    data = zipped(files_of(), external_attr=(kind | 0o777) << 16)
    with pytest.raises(RemoteProtocolError, match="is a link or a device"):
        unpack(data, stage)
    assert written(stage) == set()


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE],
)
def test_tar_with_a_link_or_device_is_refused_before_anything_is_written(stage, kind):
    info = tarfile.TarInfo("scripts/link")
    info.type, info.linkname = kind, "../../../etc/passwd"
    with pytest.raises(RemoteProtocolError, match="is a link, a device"):
        unpack(tarred(files_of(), extra=[(info, b"")]), stage, "tar")
    assert written(stage) == set()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_name_that_is_there_twice_is_refused(stage):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        out.writestr("SKILL.md", skill_md())
        out.writestr("a.txt", b"one")
        out.writestr("a.txt", b"two")
    with pytest.raises(RemoteProtocolError, match="is there twice"):
        unpack(made.getvalue(), stage)


def test_zip_bomb_is_refused_by_its_ratio(stage):
    with pytest.raises(RemoteProtocolError, match="over 200 times its size"):
        unpack(zipped({"SKILL.md": skill_md(), "zeros": bytes(9 << 20)}), stage)
    assert written(stage) == set()


def test_tar_bomb_is_refused_by_its_ratio(stage):
    with pytest.raises(RemoteProtocolError, match="over 200 times its size"):
        unpack(tarred({"SKILL.md": skill_md(), "zeros": bytes(9 << 20)}), stage, "tar")
    assert written(stage) == set()


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_file_over_the_limit_is_refused(stage, kind):
    files = {"SKILL.md": skill_md(), "big": os.urandom(1 << 20) * 11}
    data = zipped(files) if kind == "zip" else tarred(files)
    with pytest.raises(RemoteProtocolError, match=r"over 10 MiB|200 times"):
        unpack(data, stage, kind)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_too_many_files_are_refused(stage, kind):
    files = {"SKILL.md": skill_md(), **{f"f{i}": b"" for i in range(FILES_MAX)}}
    data = zipped(files) if kind == "zip" else tarred(files)
    with pytest.raises(RemoteProtocolError, match=f"more than {FILES_MAX} files"):
        unpack(data, stage, kind)
    assert written(stage) == set()


def test_size_that_lies_is_caught_by_what_comes_out(stage):
    """The declared size says 10 bytes, the data are more."""
    data = bytearray(zipped({"SKILL.md": skill_md(), "lie.txt": b"x" * 5000}))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.rindex(signature)
        struct.pack_into("<I", data, at + offset, 10)
    with pytest.raises(RemoteProtocolError, match="broken"):
        unpack(bytes(data), stage)


def test_encrypted_member_is_refused(stage):
    data = bytearray(zipped({"SKILL.md": skill_md()}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    with pytest.raises(RemoteProtocolError, match="is encrypted"):
        unpack(bytes(data), stage)


def test_other_compressions_are_refused(stage):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as out:
        out.writestr("SKILL.md", skill_md())
    with pytest.raises(RemoteProtocolError, match="not unpacked here"):
        unpack(made.getvalue(), stage)


def test_utf8_names_that_do_not_say_so_are_read_as_such(stage):
    data = bytearray(zipped({"SKILL.md": skill_md(), "Łódź.txt": b"x"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.rindex(signature)
        flags = struct.unpack_from("<H", data, at + offset)[0]
        struct.pack_into("<H", data, at + offset, flags & ~0x800)
    unpack(bytes(data), stage)
    assert "Łódź.txt" in stage.files


def test_name_in_no_known_encoding_is_refused(stage):
    data = zipped({"SKILL.md": skill_md(), "a~~b.txt": b"x"}).replace(b"a~~b", b"a\xff\xfeb")
    with pytest.raises(RemoteProtocolError, match="in no encoding"):
        unpack(data, stage)


def test_zero_byte_in_a_name_is_refused(stage):
    """The library cuts such a name, and two readers see two files."""
    data = zipped({"SKILL.md": skill_md(), "safe.txtXevil": b"x"}).replace(
        b"txtXevil", b"txt\0evil"
    )
    with pytest.raises(RemoteProtocolError, match="zero byte"):
        unpack(data, stage)


def test_directory_of_a_zip_over_a_mebibyte_is_not_read(stage):
    """Each of its entries costs ten times its size in memory."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as out:
        out.writestr("SKILL.md", skill_md())
        info = zipfile.ZipInfo("a")
        info.extra = struct.pack("<HH", 0xCAFE, 65_000) + bytes(65_000)
        for number in range(20):
            info.filename = f"a{number}"
            out.writestr(info, b"")
    with pytest.raises(RemoteProtocolError, match="its directory is over 1 MiB"):
        unpack(made.getvalue(), stage)


def test_header_of_a_tar_over_a_mebibyte_is_not_read(stage):
    """A pax header is read whole by the library, whatever it says of its size."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo("SKILL.md")
        info.pax_headers = {"comment": "x" * (3 << 20)}
        out.addfile(info)
    with pytest.raises(RemoteProtocolError, match="a header is over 1 MiB"):
        unpack(made.getvalue(), stage, "tar")


def test_sparse_file_is_refused(stage):
    info = tarfile.TarInfo("holes")
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.size": "1000000000",
        "GNU.sparse.map": "0,0",
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as out:
        skill = tarfile.TarInfo("SKILL.md")
        skill.size = len(skill_md())
        out.addfile(skill, io.BytesIO(skill_md()))
        out.addfile(info)
    with pytest.raises(RemoteProtocolError, match="has holes"):
        unpack(made.getvalue(), stage, "tar")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_every_cut_of_an_archive_is_an_error(tmp_path, kind):
    data = zipped(files_of()) if kind == "zip" else tarred(files_of())
    for number, end in enumerate(range(0, len(data) - 1, 17)):
        with pytest.raises(RemoteProtocolError):
            unpack(data[:end], Stage(str(tmp_path / f"s{number}")), kind)


def test_archive_without_a_skill_is_refused(stage):
    for files in (
        {"README.md": b"x"},
        {"a/b/SKILL.md": skill_md()},
        {"a/SKILL.md": b"", "b": b""},
    ):
        with pytest.raises(RemoteProtocolError, match="no SKILL.md at its top"):
            unpack(zipped(files), stage)


def test_lock_of_another_daemon_and_clutter_are_left_out(stage):
    files = {
        **files_of(),
        ".skill-lock.json": b"{}",
        ".git/config": b"x",
        "__MACOSX/SKILL.md": b"",
    }
    unpack(zipped(files), stage)
    assert set(stage.files) == set(files_of())


def test_digest_depends_on_names_and_contents():
    assert digest_of({"b": "1", "a": "2"}) == digest_of({"a": "2", "b": "1"})
    assert digest_of({"a": "1"}) != digest_of({"a": "2"}) != digest_of({"b": "2"})
    assert digest_of({"a": "1"}) == sha(b"a:1")


def test_written_bytes_count_and_not_declared_ones(stage):
    with pytest.raises(RemoteProtocolError, match="over 10 MiB"):
        stage.add("a", (bytes(1 << 20) for _ in range(100)))
    assert os.path.getsize(f"{stage.path}/a") <= FILE_MAX
