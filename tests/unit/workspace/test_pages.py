"""Parts of a file as text: never half a character, and every byte is reached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.workspace import pages

TEXT = st.text(
    alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aé€😀\n")),
    max_size=60,
)


def reader(data):
    return lambda offset, count: data[offset : offset + count]


def go_on():
    return False


@given(text=TEXT, length=st.integers(1, 20))
def test_pages_are_whole_characters_and_together_the_file(text, length):
    """Facts of PicoClaw, 6: its pages may split a character of UTF-8."""
    data, offset, parts = text.encode(), 0, []
    while offset is not None:
        page = pages.page(reader(data), offset, length)
        assert page.offset == offset
        assert len(page.data) <= max(length, 4)
        parts.append(page.data.decode())
        offset = page.next
    assert "".join(parts) == text


@given(text=TEXT, offset=st.integers(0, 80), length=st.integers(1, 20))
def test_page_begins_with_a_character_wherever_it_is_asked_to(text, offset, length):
    page = pages.page(reader(text.encode()), offset, length)
    page.data.decode()
    assert offset - 3 <= page.offset <= offset


@given(data=st.binary(max_size=60), length=st.integers(1, 20))
def test_what_is_no_utf8_is_paged_too(data, length):
    offset, parts = 0, []
    while offset is not None:
        page = pages.page(reader(data), offset, length)
        assert page.data or not data
        parts.append(page.data)
        offset = page.next
    assert b"".join(parts) == data


@given(text=TEXT, room=st.integers(1, 30), first=st.integers(1, 5), count=st.integers(1, 5))
def test_lines_are_those_of_the_file(text, room, first, count):
    data = text.encode()
    wanted = data.removesuffix(b"\n").split(b"\n") if data else []
    found = pages.lines(reader(data), first, count, room, go_on)
    if found is None:
        assert first > max(len(wanted), 1)
        return
    assert len(found.lines) <= count
    rows = wanted[first - 1 : first - 1 + len(found.lines)]
    if found.is_cut:
        assert len(found.lines) == 1
        assert rows[0].startswith(found.lines[0])
        found.lines[0].decode()
    else:
        assert found.lines == rows
    if found.next is None:
        assert first - 1 + len(found.lines) == len(wanted)
    else:
        read = sum(map(len, found.lines)) + len(found.lines) - found.is_cut
        assert found.next == found.offset + read


def test_line_that_is_longer_than_a_page_is_reached_whole():
    """Facts of PicoClaw, 6: there the rest of it was unreachable."""
    data = b"short\n" + "é".encode() * 500 + b"\nlast"
    found = pages.lines(reader(data), 2, None, 101, go_on)
    assert found.is_cut
    text, offset = found.lines[0].decode(), found.next
    while offset < data.index(b"\nlast"):
        page = pages.page(reader(data), offset, 101)
        text, offset = text + page.data.decode(), page.next
    assert text.startswith("é" * 500 + "\n")
    assert pages.lines(reader(data), 3, None, 101, go_on).lines == [b"last"]


def test_search_for_a_line_of_a_long_file_can_be_stopped():
    asked = []

    def stopped():
        asked.append(1)
        return len(asked) > 3

    endless = lambda _offset, count: b"x" * count  # noqa: E731
    assert pages.lines(endless, 2, None, 100, stopped) is None
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"plain text\n", ""),
        ("Grüße, 世界\n".encode(), ""),
        (b"\x1b[31mred\x1b[0m\r\n", ""),
        ("Gr\u00fc\u00dfe".encode("latin-1"), ""),
        (b"%PDF-1.7\ntext", "a PDF document"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"a\0b", "binary data"),
        (bytes(range(1, 256)), "binary data"),
        ("ü".encode("utf-16"), "text in UTF-16: convert it (iconv -f UTF-16)"),
        (b"", ""),
    ],
)
def test_binary_is_told_from_text(data, kind):
    """Facts of PicoClaw, 16: #1049, a PDF dumped into the context."""
    assert pages.kind(data[: pages.HEAD], data) == kind
