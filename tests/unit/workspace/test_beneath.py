"""Resolution that never leaves a directory: openat2 and the walk that stands in for it."""

import errno
import os

import pytest

from edged.errors import SandboxSetupError
from edged.sandbox.account import Account
from edged.workspace import beneath

ways = pytest.mark.parametrize("way", [beneath.open_at, beneath.walk])


@pytest.fixture
def tree(tmp_path):
    inside = tmp_path / "in"
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "a" / "b" / "file").write_text("in")
    (inside / "top").write_text("top")
    (tmp_path / "secret").write_text("out")
    for name, target in {
        "up": "..",
        "out": "../secret",
        "absolute": str(tmp_path / "secret"),
        "good": "a/b/file",
        "a/back": "../top",
        "a/deep": "../../secret",
        "loop": "loop",
        "two": "good",
        "dir": "a",
    }.items():
        (inside / name).symlink_to(target)
    fd = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def content(way, fd, path, **options):
    found = way(fd, path, os.O_RDONLY, **options)
    try:
        return os.read(found, 100).decode()
    finally:
        os.close(found)


@ways
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a/b/file", "in"),
        ("good", "in"),
        ("two", "in"),
        ("dir/b/file", "in"),
        ("a/back", "top"),
        ("a/../top", "top"),
        ("dir/back", "top"),
        ("./a//b/./file", "in"),
    ],
)
def test_what_stays_beneath_is_opened(tree, way, path, text):
    """openat2(2): links are followed while they stay beneath."""
    assert content(way, tree, path) == text


@ways
@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("up/secret", errno.EXDEV),
        ("out", errno.EXDEV),
        ("absolute", errno.EXDEV),
        ("a/deep", errno.EXDEV),
        ("../secret", errno.EXDEV),
        ("loop", errno.ELOOP),
        ("missing", errno.ENOENT),
        ("top/x", errno.ENOTDIR),
    ],
)
def test_what_leads_out_is_refused(tree, way, path, number):
    """openat2(2), RESOLVE_BENEATH: EXDEV, by both ways alike."""
    with pytest.raises(OSError) as caught:
        way(tree, path, os.O_RDONLY)
    assert caught.value.errno == number


@ways
@pytest.mark.parametrize("path", ["good", "dir/b/file"])
def test_links_can_be_forbidden_altogether(tree, way, path):
    """openat2(2), RESOLVE_NO_SYMLINKS: ELOOP."""
    with pytest.raises(OSError) as caught:
        way(tree, path, os.O_RDONLY, links=False)
    assert caught.value.errno == errno.ELOOP


@ways
def test_absolute_link_to_a_known_directory_is_followed(tree, way, tmp_path):
    """A tool links to `/workspace/a`, which is another path on the host."""
    os.symlink("/workspace/a/b", "known", dir_fd=tree)

    def absolute(target):
        name, _, rest = target.removeprefix("/").partition("/")
        return (os.open(tmp_path / "in", os.O_PATH), rest) if name == "workspace" else None

    assert content(way, tree, "known/file", absolute=absolute) == "in"
    os.symlink("/workspace/../secret", "bad", dir_fd=tree)
    with pytest.raises(OSError) as caught:
        way(tree, "bad", os.O_RDONLY, absolute=absolute)
    assert caught.value.errno == errno.EXDEV


@ways
def test_file_is_made_beneath(tree, way, tmp_path):
    """open(2), O_CREAT; a link at its place is not written through when it leads out."""
    os.close(way(tree, "a/new", os.O_WRONLY | os.O_CREAT, 0o600))
    assert (tmp_path / "in" / "a" / "new").stat().st_mode & 0o777 == 0o600
    os.symlink("../made", "escape", dir_fd=tree)
    with pytest.raises(OSError) as caught:
        way(tree, "escape", os.O_WRONLY | os.O_CREAT, 0o600)
    assert caught.value.errno == errno.EXDEV
    assert not (tmp_path / "made").exists()


@ways
def test_directory_itself_is_opened(tree, way):
    for path in ("", ".", "a/.."):
        fd = way(tree, path, os.O_RDONLY | os.O_DIRECTORY)
        assert "top" in os.listdir(fd)
        os.close(fd)


def test_kernel_without_openat2_is_served_by_the_walk(tree, monkeypatch):
    """Linux before 5.6, and filters that know no openat2 (systemd's RestrictSUIDSGID=)."""
    monkeypatch.setattr(beneath, "SYS_OPENAT2", 100_000)
    assert content(beneath.open_at, tree, "two") == "in"
    with pytest.raises(OSError) as caught:
        beneath.open_at(tree, "out", os.O_RDONLY)
    assert caught.value.errno == errno.EXDEV


def test_root_reaches_no_more_than_the_account(tmp_path):
    """credentials(7): the filesystem uid of this thread; a plain user acts for nobody else."""
    refusal = PermissionError if os.geteuid() == 0 else SandboxSetupError
    os.chmod(tmp_path, 0o755)
    secret = tmp_path / "secret"
    secret.write_text("own")
    secret.chmod(0o600)
    fd = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(refusal), beneath.acting_as(Account(12345, 12345, "tool")):
            beneath.open_at(fd, "secret", os.O_RDONLY)
        assert content(beneath.open_at, fd, "secret") == "own"
    finally:
        os.close(fd)
