"""Words of tools' names and descriptions, and their ranking."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.search import K1, B, Ranking, Whole, literals, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mcp_github_create_issue", "mcp github create issue"),
        ("read-file.bytes", "read file byte"),
        ("createIssue", "createissue create issue"),
        ("HTTPServer", "httpserver http server"),
        ("GitHub", "github git hub"),
        ("BME280 i2c", "bme280 i2c"),
        ("Issues, queries: STATUS", "issue query status"),
        ("Straße Łódź", "strasse łódź"),
        ("查找文件 files", "查 找 文 件 file"),
        ("__ -- ..", ""),
    ],
)
def test_words_are_split_as_their_writer_meant_them(text, found):
    """Issue 4, part 8: at `_`, `-` and case."""
    assert words(text) == found.split()


@given(st.text(max_size=200))
def test_any_text_has_words_in_lower_case(text):
    """Names of upstream tools are another one's."""
    assert all(word and word == word.casefold() for word in words(text))


def test_a_score_is_the_formulas():
    """Robertson and Zaragoza (2009), equation 3.15, with the +1 that keeps rarity positive."""
    texts = [("", "red green"), ("", "red red blue blue"), ("", "blue blue blue")]
    average = (2 + 4 + 3) / 3

    def score(often, length, found):
        rarity = math.log((3 - found + 0.5) / (found + 0.5) + 1)
        return rarity * often * (K1 + 1) / (often + K1 * (1 - B + B * length / average))

    expected = {
        0: score(1, 2, 2) + score(1, 2, 1),
        1: score(2, 4, 2),
    }
    ranking = Ranking(texts)
    assert ranking.best("red green red", 5) == ([0, 1], 2)
    assert expected[0] > expected[1]
    # One rare word outweighs two that are everywhere.
    assert ranking.best("green blue", 1) == ([0], 3)


def test_a_word_of_the_name_counts_more_than_one_of_the_description():
    """What a tool is called says what it does."""
    ranking = Ranking([("list_pulls", "Lists what an issue has."), ("create_issue", "Opens one.")])
    assert ranking.best("issue", 5) == ([1, 0], 2)


def test_equal_ones_come_in_their_order_and_no_more_than_wanted():
    """Lists are sorted by name, so that answers hold."""
    ranking = Ranking([(f"deep_{n}", "Goes.") for n in range(50)])
    assert ranking.best("deep", 3) == ([0, 1, 2], 50)


@pytest.mark.parametrize("texts", [[], [("", "")]])
def test_nothing_is_found_where_nothing_is(texts):
    """No tools at all, or one without a word."""
    assert Ranking(texts).best("deep", 5) == ([], 0)
    assert Ranking([("deep", "")]).best("!?", 5) == ([], 0)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("issue", ["issue"]),
        ("Pull Request|merge-it", ["pull request", "merge-it"]),
        ("issue|", []),
        ("a.b", []),
        ("a+", []),
        ("é", []),
        ("(?i)a", []),
        ("|".join("abcdefghijklmnopq"), []),
    ],
)
def test_a_pattern_of_words_needs_no_engine(pattern, parts):
    """All else may backtrack, or means something else without regard to case."""
    assert literals(pattern) == parts


def test_texts_with_the_word_in_their_name_come_first():
    """As the process that matches patterns has it."""
    texts = ["a\nissue", "issue\nb", "c\nnone", "d_issue\nissue"]
    whole = Whole(texts)
    assert whole.containing(["issue"], 2) == ([1, 3], 3)
    assert whole.containing(["none", "b"], 5) == ([1, 2], 2)
    assert Whole([]).containing(["issue"], 2) == ([], 0)


@given(
    st.lists(st.text("aAbB \0\n", max_size=8)), st.lists(st.text("abB ", min_size=1, max_size=2))
)
def test_a_word_is_found_where_it_is_and_nowhere_else(lines, parts):
    """Against Python's own `in`, text by text; no word reaches over two texts."""
    texts = [f"{line.replace(chr(10), ' ')}\n{line}" for line in lines]
    low = [part.lower() for part in parts]
    found = [n for n, t in enumerate(texts) if any(p in t.lower().replace("\0", " ") for p in low)]
    numbers, total = Whole(texts).containing(low, len(texts))
    assert (sorted(numbers), total) == (found, len(found))
