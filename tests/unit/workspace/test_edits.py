"""Edits and their diffs; the diff is applied by patch(1), which nobody here wrote."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.workspace import edits


def edit(data, old, new, *, every=False):
    return edits.replace(data.encode(), old.encode(), new.encode(), every=every, limit=1 << 20)


def test_passage_that_occurs_once_is_replaced():
    found = edit("a b c", "b", "x\ny")
    assert (found.data, found.places) == (b"a x\ny c", [2])


@pytest.mark.parametrize(
    ("data", "old", "told"),
    [
        ("one two", "three", "does not occur"),
        ("def f():\n    return 1\n", "def f():\n\treturn 1", "white space alone is at line 1"),
        ("x\ny\nx\n", "x", r"occurs 2 times \(lines 1, 3\)"),
        ("aaa", "aa", r"occurs 2 times \(lines 1, 1\)"),
        ("x\n" * 9, "x", r"occurs 9 times \(lines 1, 2, 3, 4, 5 …\)"),
    ],
)
def test_passage_that_is_not_there_once_is_refused_with_a_way_on(data, old, told):
    """Facts of PicoClaw, 6: old_text must occur exactly once."""
    with pytest.raises(edits.EditError, match=told):
        edit(data, old, "new")


def test_text_that_would_grow_too_long_is_not_made():
    """A board has 512 MB: the size is known before."""
    with pytest.raises(edits.EditError, match="would have 8000000000000 bytes"):
        edits.replace(b"x" * 8_000_000, b"x", b"y" * 1_000_000, every=True, limit=8 << 20)


def test_each_occurrence_is_replaced_where_that_is_asked_for():
    found = edit("x y x", "x", "z", every=True)
    assert (found.data, found.places) == (b"z y z", [0, 4])


def test_line_ends_of_a_dos_file_are_kept():
    found = edit("one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\n3")
    assert found.data == b"1\r\n2\r\n3\r\nthree\r\n"
    mixed = edit("one\r\ntwo\nthree\n", "two", "2\n3")
    assert mixed.data == b"one\r\n2\n3\nthree\n", "a file with both is left as it is"


def test_diff_is_a_unified_one():
    """GNU diffutils, "Detailed Description of Unified Format"."""
    data = "".join(f"line {number}\n" for number in range(1, 21))
    found = edit(data, "line 10\n", "line ten\nand more\n")
    assert edits.diff(data.encode(), found, "/workspace/a") == (
        "--- /workspace/a\n+++ /workspace/a\n@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n"
        "-line 10\n+line ten\n+and more\n line 11\n line 12\n line 13"
    )


LINES = st.lists(st.sampled_from(["a", "b", "ab", "", "x y"]), max_size=30).map("\n".join)


@settings(max_examples=150)
@given(data=LINES, old=st.sampled_from(["a", "b", "a\n", "\n", "b\na", "x y\n"]),
       new=st.sampled_from(["", "c", "c\n", "\n", "c\nd", "a\na\n"]), end=st.sampled_from(["", "\n"]))  # fmt: skip
def test_patch_makes_the_new_text_of_the_old_one(data, old, new, end, tmp_path_factory):
    """patch(1) is the judge of a diff."""
    before = (data + end).encode()
    try:
        found = edits.replace(before, old.encode(), new.encode(), every=True, limit=1 << 20)
    except edits.EditError:
        return
    if found.data == before or not found.data:
        return
    folder = tmp_path_factory.mktemp("patch")
    file = folder / "file"
    file.write_bytes(before)
    diff = edits.diff(before, found, "file") + "\n"
    done = subprocess.run(
        ["patch", "-s", str(file)], input=diff.encode(), capture_output=True, cwd=folder
    )
    assert done.returncode == 0, (diff, done.stdout)
    assert file.read_bytes() == found.data, diff


def test_large_change_is_told_without_comparing_it():
    data = "".join(f"{number}\n" for number in range(2_000))
    found = edit(data, data, data.replace("7", "8"))
    rows = edits.diff(data.encode(), found, "a").split("\n")
    assert len(rows) == 3 + 4_000


def test_long_passage_that_is_not_there_is_looked_for_once():
    """A pattern of its words was tried at each place of the file: minutes, and the loop with it."""
    with pytest.raises(edits.EditError, match="copy the passage exactly"):
        edit("a a " * 500_000, "a " * 4_900 + "b", "x")
