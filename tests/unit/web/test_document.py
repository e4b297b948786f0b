"""What a page is read as, and in which parts it is shown."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import ConfigError
from edged.web.document import INDENTED_MAX, PAGE_BYTES, PAGE_LINES, form, page_of, read_page
from edged.web.fetch import Page


def page(data, kind="", charset="", cut=False):
    data = data.encode() if isinstance(data, str) else data
    return Page("https://x.example/f", 200, kind, charset, data, cut, "f")


async def never(*_):
    raise AssertionError("nothing is to be parsed")


NESTED = "[" * 900 + "1," * 5_000 + "1" + "]" * 900
LONG = '["' + "x" * INDENTED_MAX + '"]'


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        ("<p>", "text/html", "markdown"), ("<p>", "application/xhtml+xml", "markdown"),
        (" <!DOCTYPE html>", "", "markdown"), ("<html>", "application/octet-stream", "markdown"),
        ("{}", "application/json", "json"), ("{}", "application/ld+json", "json"),
        ("x", "text/plain", "text"), ("a: 1", "application/yaml", "text"),
        ("<a/>", "application/xml", "text"), ("<rss/>", "application/rss+xml", "text"),
        ("plain words", "", "text"), (b"\x89PNG\r\n\x1a\n\0", "image/png", "file"),
        (b"\0\1\2", "application/octet-stream", "file"), (b"\0\1\2", "", "file"),
        (b"%PDF-1.7", "application/pdf", "pdf"), (b"%PDF-1.7", "application/octet-stream", "pdf"),
        (b"", "image/png", "text"), ("é" * 2_000, "", "text"),
    ],
)  # fmt: skip
def test_a_page_is_read_as_what_it_is(data, kind, expected):
    assert form(page(data, kind)) == expected


@pytest.mark.parametrize(
    ("text", "extractor", "shown"),
    [
        ('{"b":1,"a":[1,2.50]}', "json", '{\n  "b": 1,\n  "a": [\n    1,\n    2.50\n  ]\n}'),
        ('{"b":', "text", '{"b":'),
        ("[" * 5_000, "text", "[" * 5_000),
        ('"ümlaut"', "json", '"ümlaut"'),
        # Set out in lines, each number would stand behind 1,800 spaces.
        (NESTED, "json", NESTED),
        (LONG, "json", LONG),
    ],
)
async def test_json_is_indented_and_what_is_none_stays_as_it_is(text, extractor, shown):
    found = await read_page(page(text, "application/json"), never)
    assert (found.extractor, found.text) == (extractor, shown)


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("äö".encode(), "", "äö"), ("äö".encode("latin-1"), "iso-8859-1", "äö"),
        ("äö".encode("latin-1"), "", "äö"), ("привет".encode("koi8-r"), "koi8-r", "привет"),
        (b"aGk=", "base64", "aGk="), (b"\xff\xfeh\0i\0", "utf-8", "hi"), (b"x\xff", "utf-8", "x\ufffd"),
    ],
)  # fmt: skip
async def test_text_is_read_in_its_characters(data, charset, text):
    found = await read_page(page(data, "text/plain", charset), never)
    assert (found.extractor, found.text) == ("text", text)


@pytest.mark.parametrize(
    ("library", "data", "kind"),
    [("justhtml", "<p>", "text/html"), ("pypdf", b"%PDF-1.7", "application/pdf")],
)
async def test_a_missing_library_is_told_with_its_remedy(monkeypatch, library, data, kind):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf"{library}: .*pip install 'edged\[web\]'"):
        await read_page(page(data, kind), never)


async def test_a_character_that_the_limit_cut_does_not_change_the_others():
    found = await read_page(page("grün".encode()[:-2], "text/plain", cut=True), never)
    assert found.text == "gr"


async def test_half_a_pdf_is_a_file_with_the_setting_that_cut_it():
    found = await read_page(page(b"%PDF-1.7", "application/pdf", cut=True), never)
    assert found.extractor == "file"
    assert "tools.web.fetch_limit_bytes" in found.problem


def parts(text, max_chars):
    offset, found = 0, []
    while offset is not None:
        part, offset = page_of(text, offset, max_chars)
        found.append(part)
    return found


@given(st.text(st.sampled_from("ab. \n\n日😀"), max_size=400), st.integers(1, 90))
def test_the_parts_of_a_text_are_the_text(text, max_chars):
    found = parts(text, max_chars)
    assert "".join(found) == text
    assert all(len(part) <= max_chars for part in found)


def test_a_part_ends_at_a_paragraph():
    """Issue 4, part 5: `max_chars` at a paragraph."""
    text = "one. two\n\nthree. four\nfive six\n\nseven"
    assert page_of(text, 0, 14) == ("one. two\n\n", 10)
    assert page_of(text, 10, 16) == ("three. four\n", 22)
    assert page_of(text, 22, 7) == ("five ", 27)
    assert page_of("x" * 30, 0, 7) == ("x" * 7, 7)


@pytest.mark.parametrize("text", ["日" * 60_000, "\n" * 9_000, "😀 " * 30_000, "x\n" * 4_000])
def test_a_part_is_below_what_a_results_text_is_cut_to(text):
    """Contract, section 7: 50 KB or 2,000 lines; edged pages before that."""
    for part in parts(text, 1_000_000):
        assert len(part.encode()) <= PAGE_BYTES
        assert part.count("\n") <= PAGE_LINES
    assert "".join(parts(text, 1_000_000)) == text
