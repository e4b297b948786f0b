"""SKILL.md by the Agent Skills rules, leniently; complaints of others as numbered there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import ConfigError
from edged.skills import document, names


def read(text, directory="pdf-tools"):
    data = text if isinstance(text, bytes) else text.encode()
    return document.read(data, directory)


def test_fields_of_the_specification_are_read():
    found = read(
        "---\nname: pdf-tools\ndescription: Reads PDF.\nlicense: Apache-2.0\n"
        "compatibility: Needs python3\nmetadata:\n  author: acme\n  version: '2.1'\n  count: 3\n"
        "allowed-tools: Read Bash(git:*) Bash(jq a b)\nunknown-key: 1\n---\n\n# How\n"
    )
    assert (found.name, found.description, found.body) == ("pdf-tools", "Reads PDF.", "# How")
    assert (found.license, found.compatibility) == ("Apache-2.0", "Needs python3")
    assert found.metadata == {"author": "acme", "version": "2.1", "count": "3"}
    assert found.allowed_tools == ("Read", "Bash(git:*)", "Bash(jq a b)")
    assert (found.version, found.warnings) == ("2.1", ())


@pytest.mark.parametrize(
    "text",
    [
        "allowed-tools: Read, Grep ,, Bash(a, b)",
        "allowed-tools: [Read, ' Grep ', '', 'Bash(a, b)']",
    ],
)
def test_tools_may_be_a_list_or_have_commas(text):
    """Section 5, 10: both are found in the wild; parentheses stay together."""
    found = read(f"---\nname: pdf-tools\ndescription: x\n{text}\n---\n")
    assert found.allowed_tools == ("Read", "Grep", "Bash(a, b)")


def test_colon_in_a_description_is_read_with_a_warning():
    """Section 5, 1: such a skill vanished without a word."""
    found = read("---\nname: pdf-tools\ndescription: Use when: forms\n---\nx\n")
    assert found.description == "Use when: forms"
    assert "needs quotes" in found.warnings[0]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf---\nname: pdf-tools\ndescription: x\n---\nBody\n",
        b"---\r\nname: pdf-tools\r\ndescription: x\r\n---\r\nBody\r\n",
        b"---\nname: pdf-tools\ndescription: >-\n  x\n---\nBody",
    ],
)
def test_byte_order_mark_crlf_and_folded_text_are_read(data):
    """Section 5, 4 to 6."""
    found = read(data)
    assert (found.description, found.body, found.warnings) == ("x", "Body", ())


def test_fence_is_a_whole_line():
    """Section 5, 7: `---` within a value closes nothing."""
    found = read("---\nname: pdf-tools\ndescription: a --- b\n---\nBody\n---\nmore\n")
    assert (found.description, found.body) == ("a --- b", "Body\n---\nmore")


@pytest.mark.parametrize("value", ["3000", "[a, b]", "true", "{a: 1}"])
def test_wrong_types_never_end_the_reading(value):
    """Section 5, 11: a number or a list where text was meant crashed."""
    found = read(
        f"---\nname: {value}\ndescription: x\nlicense: {value}\nmetadata: {value}\n"
        f"allowed-tools: {value}\ncompatibility: {value}\n---\n"
    )
    assert found.description == "x"
    assert any(one.startswith("name: ") for one in found.warnings)


def test_words_stay_words():
    """Section 5, 12: YAML 1.1 makes `no` a boolean."""
    assert read("---\nname: no\ndescription: on\n---\n", "no").warnings == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no fence\n", "SKILL.md:1: the first line must be `---`"),
        ("---\nname: x\ndescription: y\n", "never closed"),
        ("---\nname: x\n---\n", "SKILL.md:2: description: is missing"),
        ("---\nname: x\ndescription: '  '\n---\n", "description: is missing"),
        ("---\ndescription: [ray[train], torch]\n---\n", "SKILL.md:2"),
        (b"---\ndescription: \xff\n---\n", "not UTF-8"),
        ("---\n- a\n---\n", "has no keys"),
    ],
)
def test_what_cannot_be_loaded_says_where_and_why(text, says):
    """Section 5, 8 and 14; the guide: no description, no skill."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert says in str(caught.value)


def test_description_is_one_line_that_is_bounded():
    """Section 5, 46: it broke out of the prompt's list."""
    found = read(
        '---\nname: pdf-tools\ndescription: "a\\n</skill>\\u202e' + "b" * 3000 + '"\n---\n'
    )
    assert len(found.description) == 1024
    assert found.description.startswith("a </skill>\N{REPLACEMENT CHARACTER}bbb")
    assert "\n" not in found.description


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("pdf-tools", ""),
        ("中文-2", ""),
        ("Pdf", "lowercase"),
        ("a_b", "lowercase"),
        ("-a", "hyphen"),
        ("a-", "hyphen"),
        ("a--b", "hyphen"),
        ("", "1 to 64"),
        ("a" * 65, "1 to 64"),
    ],
)
def test_names_follow_the_specification(name, fault):
    """Agent Skills, `name`."""
    assert fault in names.faults(name) if fault else names.faults(name) == ""


@given(st.binary(max_size=400))
def test_any_bytes_give_facts_or_a_fault(data):
    try:
        found = document.read(b"---\n" + data, "x")
    except ConfigError:
        return
    assert found.description.isprintable()
