"""The one road of every result: never empty, cut, long base64 moved, secrets masked."""

import base64
import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edged import results
from edged.results import (
    MASK,
    MAX_BYTES,
    MAX_LINES,
    Audio,
    Image,
    Resource,
    ResourceLink,
    Result,
    Text,
    complete,
    count_lines,
    is_small,
    joined,
    keep_lines,
    mask,
    mask_result,
    normalise,
)


class Kept:
    """Stands for media: remembers what it was given."""

    def __init__(self, works=True):
        self.items = []
        self.works = works

    def __call__(self, data, mime, name):
        if not self.works:
            return ""
        self.items.append((data, mime, name))
        return f"media://{len(self.items)}"


NOISE = random.Random(1).randbytes(3000)
BASE64 = base64.b64encode(NOISE).decode()


# Shape ------------------------------------------------------------------------------------


def test_a_result_is_on_the_wire_as_the_contract_shows_it():
    """Contract, section 7."""
    done = complete(results.text("hi"))
    assert msgspec.json.decode(msgspec.json.encode(done)) == {
        "content": [{"type": "text", "text": "hi"}],
        "is_error": False,
        "for_llm": "hi",
        "for_user": None,
        "silent": False,
        "media": [],
        "async": False,
        "response_handled": False,
        "structured": None,
        "call_id": "",
        "duration_ms": 0.0,
        "truncated": None,
    }


def test_a_failure_is_flagged():
    """Contract, section 7: one flag."""
    assert complete(results.failure("no")).is_error


@pytest.mark.parametrize("content", [[], [Text("")], [Text(""), Text("")]])
def test_text_is_never_empty(content):
    """Contract, section 7: `(no output)`."""
    done = normalise(Result(content), Kept())
    assert done.content == [Text("(no output)")]
    assert done.for_llm == "(no output)"


def test_an_empty_text_beside_an_image_is_left_out():
    """Providers refuse empty text blocks."""
    done = complete(Result([Text(""), Image("aGk=", "image/png")]))
    assert done.content == [Image("aGk=", "image/png")]
    assert done.for_llm == "[image: image/png]"


def test_the_text_for_the_model_names_what_is_no_text():
    """Contract, section 7: `for_llm`."""
    content = [
        Text("a"),
        Image("", "image/png"),
        Audio("", "audio/wav"),
        ResourceLink("media://1", "data"),
        ResourceLink("media://2", "data", description="a photo"),
        Resource({"uri": "file:///x", "text": "inside"}),
        Resource({"uri": "file:///y", "blob": "aGk="}),
    ]
    assert joined(content).split("\n") == [
        "a",
        "[image: image/png]",
        "[audio: audio/wav]",
        "[data: media://1]",
        "[a photo: media://2]",
        "inside",
        "[file:///y]",
    ]


def test_a_tools_own_text_for_the_model_stays():
    done = complete(Result([Text("long")], for_llm="short"))
    assert done.for_llm == "short"


def test_half_characters_do_not_reach_the_wire():
    """PEP 383: names of files that are not UTF-8 hold them, and JSON cannot."""
    result = Result([Text("a\udcffb ä")], structured={"name\udcff": ["\udcff", 1, True, None]})
    done = normalise(result, Kept())
    assert (done.content, done.for_llm) == ([Text("a?b ä")], "a?b ä")
    assert done.structured == {"name?": ["?", 1, True, None]}
    msgspec.json.encode(done)


def test_a_structured_value_that_is_no_json_is_left_out():
    """Contract, section 7: an object of the inside is never serialised."""
    assert complete(Result([Text("a")], structured={"it": object()})).structured is None


# Content of tools -------------------------------------------------------------------------


def test_content_is_text_or_a_list_of_blocks():
    """TOOL.md specification: `{type: text, text}`."""
    assert results.blocks("hi") == [Text("hi")]
    assert results.blocks([{"type": "image", "data": "aGk=", "mimeType": "image/png"}]) == [
        Image("aGk=", "image/png")
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "list of blocks"),
        ({"type": "text"}, "list of blocks"),
        ([{"type": "text", "text": "a"}, {"type": "txt"}], r"content\[1\].*txt"),
        (["a"], r"content\[0\]"),
        ([{"type": "text"}], r"content\[0\].*text"),
    ],
)
def test_content_that_is_none_says_which_block_is_wrong(content, words):
    with pytest.raises(ValueError, match=words):
        results.blocks(content)


# Cutting ----------------------------------------------------------------------------------


def lines_of(count, width=1):
    return "".join(f"{n:0{width}d}\n" for n in range(count))


@pytest.mark.parametrize(
    "body",
    [
        "x " * (MAX_BYTES // 2),
        lines_of(MAX_LINES),
        lines_of(MAX_LINES)[:-1],
        "ä " * (MAX_BYTES // 3),
    ],
)
def test_a_text_of_the_limit_itself_is_not_cut(body):
    """Contract, section 7: 50 KB or 2,000 lines; a final newline begins no line."""
    done = normalise(results.text(body), Kept())
    assert done.content == [Text(body)]
    assert done.truncated is None


@pytest.mark.parametrize(
    "body",
    ["x " * (MAX_BYTES // 2) + "y", lines_of(MAX_LINES + 1), "ä " * (MAX_BYTES // 3) + "ää"],
)
@pytest.mark.parametrize("keep_end", [False, True])
def test_a_text_over_the_limit_is_cut_and_the_whole_of_it_kept(body, keep_end):
    """Contract, section 7: what was left out, and the media path of the whole output."""
    kept = Kept()
    done = normalise(results.text(body), kept, keep_end=keep_end)
    [(data, mime, _)] = kept.items
    assert (data.decode(), mime) == (body, "text/plain; charset=utf-8")
    assert done.media == ["media://1"]
    assert done.truncated == results.Truncated(
        len(body.encode()), count_lines(body), "end" if keep_end else "start", "media://1"
    )
    assert "media://1" in done.for_llm
    note, part = (
        done.for_llm.split("\n", 1) if keep_end else reversed(done.for_llm.rsplit("\n", 1))
    )
    assert note.startswith("[last " if keep_end else "[first ")
    assert body.rstrip("\n").endswith(part) if keep_end else body.startswith(part)
    assert len(part.encode()) <= MAX_BYTES
    assert part.count("\n") < MAX_LINES


def test_a_cut_counts_what_it_shows():
    body = lines_of(3000, 4)
    done = normalise(results.text(body), Kept())
    assert done.for_llm.endswith(
        "\n[first 2000 of 3000 lines, 9999 of 15000 bytes; the whole output: media://1]"
    )


def test_a_cut_says_nothing_of_a_place_when_the_disk_is_full():
    """`keep` returns an empty string where it cannot store."""
    done = normalise(results.text(lines_of(3000, 4)), Kept(works=False))
    assert done.for_llm.endswith("\n[first 2000 of 3000 lines, 9999 of 15000 bytes]")
    assert (done.media, done.truncated.media) == ([], "")


def test_many_texts_are_cut_together():
    """The model is shown all of them."""
    body = "word " * 4_000
    content = [Text("start"), Image("aGk=", "image/png"), *(Text(body) for _ in range(5))]
    done = normalise(Result(content), Kept())
    assert [type(b) for b in done.content] == [Text, Image]
    assert len(done.content[0].text) < MAX_BYTES + 200
    few = normalise(Result([Text(body), Text(body), Text(body)]), Kept())
    assert len(few.content) == 1


def test_embedded_resources_count_for_the_model_too():
    """Contract, section 7: every tool's text is cut for the model."""
    kept = Kept()
    body = "word " * 5_000
    inside = {"uri": "file:///a", "text": body}
    done = normalise(
        Result([Resource(inside), Resource(inside), Resource({"uri": "b", "text": "b"})]), kept
    )
    assert done.content[:2] == [
        ResourceLink(
            "media://1",
            "file:///a",
            description="file:///a",
            mime_type="text/plain; charset=utf-8",
            size=25_000,
        ),
        ResourceLink(
            "media://2",
            "file:///a",
            description="file:///a",
            mime_type="text/plain; charset=utf-8",
            size=25_000,
        ),
    ]
    assert len(done.content[2:]) == 1
    assert done.media == ["media://1", "media://2"]
    full = normalise(Result([Resource(inside), Resource(inside)]), Kept(works=False))
    assert len(full.for_llm) < 2_100


def test_embedded_resources_within_the_limit_stay():
    block = Resource({"uri": "file:///a", "text": "word " * 5_000})
    assert normalise(Result([block]), Kept()).content == [block]


def test_many_small_blocks_are_no_hot_path_but_stay():
    content = [Text("a") for _ in range(17)]
    assert not is_small(Result(list(content)))
    assert normalise(Result(list(content)), Kept()).content == content


def test_links_and_short_texts_are_small():
    assert is_small(Result([Text("a"), ResourceLink("media://1", "data")]))
    assert is_small(Result([]))


@pytest.mark.parametrize(
    ("body", "max_bytes", "max_lines", "start", "end"),
    [
        ("a\nb\nc", 100, 2, "a\nb", "b\nc"),
        ("aa\nbb\ncc", 5, 9, "aa\nbb", "bb\ncc"),
        ("aa\nbb\ncc", 4, 9, "aa", "cc"),
        ("äää", 5, 9, "ää", "ää"),
        ("abcdef\n", 3, 9, "abc", "def"),
        ("\nabcdef", 3, 9, "abc", "def"),
        ("", 3, 9, "", ""),
        ("ab\ncdefghijkl\nmn", 8, 9, "ab\ncdefg", "hijkl\nmn"),
        ("abc\ndefghijkl\nmno", 8, 9, "abc", "mno"),
    ],
)
def test_lines_are_kept_from_either_end(body, max_bytes, max_lines, start, end):
    """Contract, section 7: whole lines, never inside a character."""
    assert keep_lines(body, max_bytes, max_lines, keep_end=False) == start
    assert keep_lines(body, max_bytes, max_lines, keep_end=True) == end


def test_a_long_line_before_the_final_newline_is_not_lost():
    """What a shell prints: one huge line, then a newline."""
    done = normalise(results.text("word " * 20_000 + "\n"), Kept(), keep_end=True)
    assert len(done.for_llm) > MAX_BYTES


@given(
    st.text(alphabet="ab \nä€\U0001f600", max_size=60),
    st.integers(1, 40),
    st.integers(1, 6),
    st.booleans(),
)
def test_kept_lines_are_within_bounds_and_of_whole_characters(
    body, max_bytes, max_lines, keep_end
):
    kept = keep_lines(body, max_bytes, max_lines, keep_end=keep_end)
    assert len(kept.encode()) <= max_bytes
    assert kept.count("\n") < max_lines
    stripped = body.rstrip("\n") if keep_end else body.lstrip("\n")
    assert stripped.endswith(kept) if keep_end else stripped.startswith(kept)
    if len(body.encode()) <= max_bytes and count_lines(body) <= max_lines:
        assert kept.strip("\n") == stripped.strip("\n")


@pytest.mark.parametrize(
    ("body", "count"), [("", 1), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\n\n", 2)]
)
def test_lines_are_counted_as_a_person_would(body, count):
    assert count_lines(body) == count


# Base64 -----------------------------------------------------------------------------------


def test_a_large_image_becomes_media():
    """Contract, section 7: inline base64 of 1,024 characters and more becomes media."""
    kept = Kept()
    done = normalise(Result([Image(BASE64, "image/png")]), kept)
    assert kept.items == [(NOISE, "image/png", "image")]
    assert done.content == [
        ResourceLink(
            "media://1", "image", description="image/png", mime_type="image/png", size=3000
        )
    ]
    assert done.media == ["media://1"]


@pytest.mark.parametrize(
    "block",
    [
        Image("aGk=", "image/png"),
        Audio("aGk=", "audio/wav"),
        Image("§" * 2000, "image/png"),
        Image("!" * 2000, "image/png"),
        Image("A" * 1025, "image/png"),
        Resource({"uri": "a", "blob": "aGk="}),
        Resource({"uri": "a"}),
    ],
)
def test_what_is_short_or_no_base64_stays(block):
    """Nothing is stored in parts: what cannot be decoded whole is left as it is."""
    kept = Kept()
    assert normalise(Result([block]), kept).content == [block]
    assert kept.items == []


def test_a_link_beside_an_image_stays_and_so_does_the_structured_value():
    link = ResourceLink("media://7", "data")
    done = normalise(Result([link, Image("aGk=", "image/png")], structured={"n": 1}), Kept())
    assert done.content[0] == link
    assert done.structured == {"n": 1}


def test_an_image_stays_when_the_disk_is_full():
    block = Image(BASE64, "image/png")
    assert normalise(Result([block]), Kept(works=False)).content == [block]


@pytest.mark.parametrize("spelling", [BASE64.rstrip("="), BASE64[:76] + "\r\n" + BASE64[76:]])
def test_base64_may_be_wrapped_and_without_padding(spelling):
    """RFC 2045, section 6.8; RFC 4648, section 3.2."""
    kept = Kept()
    normalise(Result([Image(spelling, "image/png")]), kept)
    assert [item[0] for item in kept.items] == [NOISE]


def test_an_embedded_blob_becomes_media():
    kept = Kept()
    blocks = [
        Resource({"uri": "a", "blob": BASE64}),
        Resource({"blob": BASE64, "mimeType": "video/mp4"}),
    ]
    normalise(Result(blocks), kept)
    assert [item[1:] for item in kept.items] == [
        ("application/octet-stream", "data"),
        ("video/mp4", "video"),
    ]


@pytest.mark.parametrize(
    ("prefix", "mime"),
    [
        ("data:image/png;base64,", "image/png"),
        ("data:;base64,", "application/octet-stream"),
        ("data:text/html;charset=utf-8;base64,", "text/html"),
        ("", "application/octet-stream"),
    ],
)
def test_base64_inside_a_text_becomes_media(prefix, mime):
    """RFC 2397."""
    kept = Kept()
    done = normalise(results.text(f"see {prefix}{BASE64} there"), kept)
    assert [(data, kind) for data, kind, _ in kept.items] == [(NOISE, mime)]
    assert done.for_llm == "see media://1 there"


def test_base64_behind_a_long_word_is_found_too():
    """The first long run of letters need not be the one."""
    body = "a" * 2000 + " " + BASE64
    assert normalise(results.text(body), Kept()).for_llm == "a" * 2000 + " media://1"


@pytest.mark.parametrize(
    "body", ["a" * 4000, "0123456789abcdef" * 100, "deadbeef" * 200, "=" * 2000]
)
def test_long_words_and_hex_dumps_are_text(body):
    kept = Kept()
    assert normalise(results.text(body), kept).for_llm == body
    assert kept.items == []


def test_base64_in_a_text_stays_when_the_disk_is_full():
    for body in (BASE64, f"data:image/png;base64,{BASE64}"):
        assert normalise(results.text(body), Kept(works=False)).for_llm == body


def test_what_becomes_media_keeps_the_annotations_of_its_text():
    done = normalise(
        Result([Text("a", {"audience": ["user"]}), Text(f"b {BASE64}", {"priority": 1})]), Kept()
    )
    assert done.content == [
        Text("a", {"audience": ["user"]}),
        Text("b media://1", {"priority": 1}),
    ]


# Secrets ----------------------------------------------------------------------------------


def test_a_secret_is_masked_everywhere_in_a_result():
    """Contract, section 7: a known secret's whole value of six characters or more."""
    secret = "hunter2!"
    result = Result(
        [
            Text(f"a {secret} b", {"note": secret}),
            Image("aGk=", secret),
            ResourceLink("media://1", secret, description=f"<{secret}>", size=7),
            Resource({"uri": secret, "text": [secret]}),
        ],
        structured={"deep": [{secret: f"x{secret}"}], "n": 5},
        for_user=secret,
        for_llm=secret,
    )
    done = mask_result(result, (secret, "short"))
    assert secret.encode() not in msgspec.json.encode(done)
    assert done.content[0] == Text(f"a {MASK} b", {"note": MASK})
    assert done.structured == {"deep": [{MASK: f"x{MASK}"}], "n": 5}


def test_short_and_empty_secrets_mask_nothing():
    """Contract, section 7: six characters or more; else every text would be full of masks."""
    assert mask("a 12345", ("", "1", "12345")) == "a 12345"
    result = results.text("a 12345")
    assert mask_result(result, ("", "12345")) is result
    assert result.content == [Text("a 12345")]


@pytest.mark.parametrize(
    "secret", ['pass"word', "back\\slash", "line\nbreak", "tab\there", "\udcffbytes"]
)
def test_a_secret_is_found_as_json_spells_it(secret):
    """Tools print their parameters as JSON."""
    spelt = msgspec.json.encode(secret.replace("\udcff", "?")).decode()
    assert mask(spelt, (secret,)) == f'"{MASK}"'
    assert mask(secret, (secret,)) == MASK
    done = mask_result(Result([Text(secret)], structured=[secret]), (secret,))
    assert (done.content, done.structured) == ([Text(MASK)], [MASK])


def test_a_secret_inside_a_longer_one_does_not_uncover_the_rest():
    assert mask("abcdefghij", ("abcdef", "abcdefghij")) == MASK


def test_a_mask_does_not_spell_another_secret():
    assert mask("xabcdefy", ("abcdef", "x[***]y")) == MASK


def test_a_number_that_is_a_secret_is_masked():
    """A PIN is text in one place and a number in another."""
    given = {"pin": 123456, "more": 1234567, "on": True, "none": None, "half": 1.5}
    assert mask(given, ("123456",)) == {**given, "pin": MASK}


def test_a_word_of_the_wire_may_be_a_secret():
    """`resource_link` is a poor password, but no reason for a call to end."""
    result = Result([ResourceLink("media://1", "resource_link"), Resource({"uri": "resource"})])
    done = mask_result(result, ("resource_link", "resource"))
    assert done.content == [ResourceLink("media://1", MASK), Resource({"uri": MASK})]


def test_nesting_without_end_does_not_end_the_call():
    """A caller chooses how deep its arguments are."""
    value = "secret"
    for _ in range(900):
        value = [value]
    assert "secret" not in str(mask(value, ("secret",)))


def test_structs_and_tuples_are_looked_into():
    """Built-in tools return them."""
    assert mask((Text("secret"),), ("secret",)) == [{"type": "text", "text": MASK}]
    assert mask({1: b"x"}, ("secret",)) == {1: b"x"}


SECRET = st.text(alphabet='ab[]*"\\ä\n', min_size=6, max_size=9)


@given(st.text(alphabet='ab[]*"\\ä\n', max_size=40), st.lists(SECRET, max_size=3), st.data())
@example("", ["secret"], None)
@example("a[***]bX[***]", ["[***]b", "aX[***]"], None)
def test_masking_never_leaves_a_secret(noise, secrets, data):
    """Whatever stands around it, other secrets and masks included."""
    pieces = [noise, *secrets]
    if data is not None:
        pieces = data.draw(st.lists(st.sampled_from(pieces), max_size=6))
    text = "".join(pieces)
    done = mask_result(Result([Text(text)], structured={text: [text]}), tuple(secrets))
    for shown in (done.content[0].text, *done.structured, *done.structured.values()):
        shown = shown if isinstance(shown, str) else shown[0]
        assert not any(secret in shown for secret in secrets)


def test_a_mask_that_makes_the_same_secret_again_costs_one_pass():
    """Masking again until nothing is found took a minute of the loop for this text."""
    assert mask("[***]" + "b" * 3_000_000, ("[***]b",)) == MASK
    assert mask("[***]bb", ("[***]b",)) == MASK


def test_short_secrets_are_absent_where_nothing_is_owed_to_the_text():
    """The trail and the log: also when the secrets are parts of a mask."""
    assert results.absent({"a": "pin 1234", "n": 1234}, ("1234",)) == {
        "a": f"pin {MASK}",
        "n": MASK,
    }
    assert results.absent("abc", ("",)) == "abc"
    assert len(results.absent("*][" * 1_000, ("*", "]", "[", "**", "]["))) < 20_000


# Bounds of one result ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["y" * (1 << 20), {"a": ["y" * (1 << 20)]}, list(range(100_000)), {"k" * 300_000: 1}]
)
def test_a_long_structured_value_becomes_a_medium(value):
    """It is no text for the model, but every client would have to take it."""
    kept = Kept()
    result = results.text("hi", structured=value)
    assert not is_small(result)
    done = normalise(result, kept)
    [(data, mime, _)] = kept.items
    assert (msgspec.json.decode(data), mime) == (value, "application/json")
    assert (done.structured, done.media) == (None, ["media://1"])
    assert done.for_llm == f"hi\n[the structured result has {len(data)} bytes: media://1]"


def test_a_long_structured_value_without_a_place_is_left_out():
    value = ["y" * results.STRUCTURED_MAX]
    done = normalise(Result([Text("hi")], structured=value, for_llm="me"), Kept(works=False))
    assert done.structured is None
    assert done.for_llm.startswith("me\n[the structured result has ")


@pytest.mark.parametrize("value", [{"a": 1}, ["y" * 100_000], list(range(1_000)), (1, 2)])
def test_a_structured_value_within_its_bound_stays(value):
    done = normalise(results.text("hi", structured=value), Kept())
    assert (done.structured, done.for_llm) == (value, "hi")


def test_a_long_structured_value_that_is_no_json_is_left_out():
    value = [object(), *range(10_000)]
    done = normalise(results.text("hi", structured=value), Kept())
    assert (done.structured, done.for_llm) == (None, "hi")


def test_text_for_the_user_is_bounded_too():
    done = normalise(results.text("hi", for_user="word " * 20_000), Kept())
    assert len(done.for_user) <= MAX_BYTES


@pytest.mark.parametrize(
    "block",
    [
        Image(BASE64, "image/png"),
        Resource({"uri": "a", "blob": BASE64}),
        Resource({"uri": "a", "text": "word " * 1_000}),
    ],
)
def test_so_many_media_of_one_result_are_stored_and_the_rest_is_counted(block):
    """Thousands of pictures in one result kept the disk busy for minutes."""
    kept = Kept()
    done = normalise(Result([block] * 200), kept)
    assert len(kept.items) == len(done.media) == results.MEDIA_MAX
    assert len(done.content) == results.MEDIA_MAX + 1
    assert done.content[-1].text.startswith("[184 blocks are left out")
    assert done.for_llm.endswith(done.content[-1].text)


def test_a_full_disk_is_not_asked_for_every_picture():
    asked = []
    normalise(Result([Image(BASE64, "image/png")] * 200), lambda *_: asked.append(1) or "")
    assert len(asked) == results.MEDIA_MAX


def test_base64_inside_a_text_beyond_what_is_stored_is_text():
    kept = Kept()
    done = normalise(results.text(" ".join([BASE64] * 30)), kept)
    assert len(kept.items) == results.MEDIA_MAX + 1
    assert kept.items[-1][2] == "output"
    assert done.truncated is not None


def test_blocks_of_a_result_are_bounded_and_no_text_is_lost():
    """Each costs every client its memory."""
    small = Image("aGk=", "image/png")
    done = normalise(Result([small] * 300 + [Text("end")]), Kept())
    assert done.content.count(small) == results.BLOCKS_MAX
    assert done.content[-2] == Text("end")
    assert done.content[-1].text.startswith("[44 blocks are left out")
