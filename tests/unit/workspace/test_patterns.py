"""Patterns of paths, as `tools.files` has them."""

import pytest

from edged.workspace.patterns import Patterns


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("/v/log/*", ["/v/log", "/v/log/a", "/v/log/a/b"], ["/v", "/v/logs", "/v/log2/a"]),
        ("/v/log", ["/v/log", "/v/log/a/b"], ["/v/logs"]),
        ("/v/*.log", ["/v/a.log", "/v/a.log/b"], ["/v", "/v/x/a.log", "/v/a.logs", "/v/alog"]),
        ("*.key", ["/a.key", "/x/y/a.key"], ["/a.keys", "/a.key2"]),
        ("**/.git", ["/.git/config", "/a/b/.git"], ["/a/.github"]),
        ("/a/**/b", ["/a/b", "/a/x/y/b/z"], ["/a/xb", "/b"]),
        ("/a/?", ["/a/x"], ["/a", "/a/xy"]),
        ("/a/[!b-d]x", ["/a/ax"], ["/a/bx", "/a/cx", "/a//x"]),
        ("/a/[d-b]", ["/a/[d-b]"], ["/a/c"]),
        ("/a.b+c", ["/a.b+c"], ["/axbc", "/a.bbc"]),
        ("/", ["/", "/a/b"], []),
    ],
)
def test_pattern_covers_what_it_names_and_all_below(pattern, inside, outside):
    """Component by component: `/v/log` says nothing of `/v/logs` (facts of PicoClaw, 7)."""
    patterns = Patterns([pattern])
    assert [path for path in inside if not patterns.covers(path)] == []
    assert [path for path in outside if patterns.covers(path)] == []


def test_links_in_a_pattern_are_followed(tmp_path):
    """/var/run is /run on every board; paths are compared with their links followed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    patterns = Patterns([f"{tmp_path}/link/*.txt"])
    assert patterns.covers(f"{tmp_path}/real/a.txt")
    assert not patterns.covers(f"{tmp_path}/real/a.md")


def test_no_pattern_covers_nothing():
    assert not Patterns([])
    assert not Patterns([]).covers("/")
