"""Cutting a TOOL.md into front matter and body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import ConfigError
from edged.toolmd.frontmatter import FILE_MAX, YAML_MAX, FrontMatter, split


def fault(data: bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        split(data, "TOOL.md")
    assert caught.value.file == "TOOL.md"
    return caught.value


PLAIN = FrontMatter("name: a\nversion: 1\n", "\n# A\n", 2, 5)


@pytest.mark.parametrize(
    "data",
    [
        b"---\nname: a\nversion: 1\n---\n\n# A\n",
        b"\xef\xbb\xbf---\nname: a\nversion: 1\n---\n\n# A\n",
        b"---\r\nname: a\r\nversion: 1\r\n---\r\n\r\n# A\r\n",
        b"---\rname: a\rversion: 1\r---\r\r# A\r",
        b"---  \nname: a\nversion: 1\n---\t \n\n# A\n",
    ],
    ids=["plain", "byte order mark", "CRLF", "CR", "blanks after fences"],
)
def test_marks_line_ends_and_blanks_change_nothing(data: bytes) -> None:
    """Issue 2, part 3: BOM, CRLF, whole-line fences."""
    assert split(data, "TOOL.md") == PLAIN


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"---\na: 1\n---", FrontMatter("a: 1\n", "", 2, 4)),
        (b"---\na: 1\n---\n", FrontMatter("a: 1\n", "", 2, 4)),
        (b"---\n---\nb", FrontMatter("", "b", 2, 3)),
        (b"---\na: x --- y\nb: |\n  ---\n---\nbody\n---\nmore", None),
        (b"---\na: '---'\n----: 1\n---\nbody\n---\nmore", None),
    ],
    ids=["no final newline", "no body", "nothing between", "indented", "inside lines"],
)
def test_only_whole_lines_are_fences(data: bytes, expected: FrontMatter | None) -> None:
    """Issue 2, part 3: whole-line fences, no final newline."""
    found = split(data, "TOOL.md")
    if expected is None:
        assert found.body == "body\n---\nmore"
        assert data.decode().split("\n")[found.body_first_line - 1] == "body"
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"", 1, "first line must be `---`"),
        (b"# Title\n---\na: 1\n---\n", 1, "first line must be `---`"),
        (b"\n---\na: 1\n---\n", 1, "first line must be `---`"),
        (b" ---\na: 1\n---\n", 1, "first line must be `---`"),
        (b"---", 1, "never closed"),
        (b"---\na: 1\n", 1, "never closed"),
        (b"---\na: 1\n --- \n# A\n", 3, "`---` alone"),
        (b"---\na: 1\n----\n# A\n", 3, "`---` alone"),
        (b"---\na: 1\n\xff\n---\n", 3, "UTF-8"),
        (b"---\r\na: 1\r\nb: \xe9\r\n---\r\n", 3, "UTF-8"),
        ("---\na: 1\n---\n".encode("utf-16"), 1, "UTF-8"),
        (b"---\na: " + b"x" * YAML_MAX + b"\n---\n", 2, "64 KiB"),
        (b"---\n---\n" + b"x" * FILE_MAX, 0, "1 MiB"),
    ],
)
def test_a_file_that_cannot_be_cut_says_where_and_what_to_write(
    data: bytes, line: int, words: str
) -> None:
    """Issue 2, part 3: listed with file, line, reason; sizes bounded."""
    error = fault(data)
    assert error.line == line
    assert words in error.reason


@given(
    st.lists(
        st.sampled_from(
            [
                b"---",
                b"\n",
                b"\r",
                b"\r\n",
                b" ",
                b"\t",
                b"a: 1",
                b"\xef\xbb\xbf",
                b"\xff",
                b"\0",
                "é".encode(),
                b"-",
            ]
        )
    ).map(b"".join)
    | st.binary(max_size=64)
)
def test_any_bytes_are_cut_or_refused_with_a_reason(data: bytes) -> None:
    """Issue 2, shows: fuzzing the front matter reader."""
    try:
        found = split(data, "TOOL.md")
    except ConfigError as error:
        refused: ConfigError | None = error
    else:
        refused = None
        assert found.yaml_first_line == 2
        assert found.body_first_line >= 3
        assert "\r" not in found.yaml_text + found.body
    assert refused is None or (refused.reason and refused.line >= 1)


line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@given(
    st.lists(line.filter(lambda one: one.rstrip(" \t") != "---"), max_size=6),
    st.lists(line, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_what_was_put_together_is_cut_apart(
    fields: list[str], body: list[str], end: str, mark: bool
) -> None:
    """The inverse of writing such a file."""
    text = end.join(["---", *fields, "---", *body])
    found = split(text.encode("utf-8-sig" if mark else "utf-8"), "TOOL.md")
    assert found.yaml_text == "".join(f"{one}\n" for one in fields)
    assert found.body == "\n".join(body)
    assert found.body_first_line == len(fields) + 3
