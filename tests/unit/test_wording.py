"""Refusals of msgspec, provoked and told."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from edged.wording import faulted, worded


class Body(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=5)]
    share: Annotated[float, Meta(gt=0)] = 0.5
    text: Annotated[str, Meta(min_length=1, max_length=3)] = "a"
    items: Annotated[list[Any], Meta(min_length=2)] | None = None
    one: Annotated[list[Any], Meta(max_length=1)] = []
    word: Literal["on", "off"] = "on"
    on: bool = True


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "count is required"),
        ({"count": 1, "cuont": 2}, "cuont is not known"),
        ({"count": "1"}, "must be an integer, not text"),
        ({"count": 0}, "must be an integer, at least 1"),
        ({"count": 6}, "must be an integer, at most 5"),
        ({"count": 1, "share": 0}, "must be a number, above 0"),
        ({"count": 1, "text": ""}, "must not be empty"),
        ({"count": 1, "text": "abcd"}, "must have at most 3 characters"),
        ({"count": 1, "items": [1]}, "must have at least 2 items"),
        ({"count": 1, "items": {}}, "must be a list or null, not an object"),
        ({"count": 1, "one": [1, 2]}, "must have at most 1 item"),
        ({"count": 1, "word": "no"}, "'no' is none of its words"),
        ({"count": 1, "on": 1}, "must be true or false, not an integer"),
    ],
)
def test_refusal_is_told_without_types_of_python(given, told):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Body)
    assert worded(str(caught.value).partition(" - at `$")[0]) == told


def test_what_has_no_words_of_ours_is_told_as_it_is():
    assert worded("Rules of its own say no") == "rules of its own say no"


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    bodies: list[Body] = []
    named: dict[str, Body | None] = {}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"bodies": [{}]}, ("bodies[0].count", "is required")),
        ({"badies": []}, ("badies", "is not known")),
        ({"bodies": [{"count": 1, "x": 2}]}, ("bodies[0].x", "is not known")),
        ({"bodies": [{"count": 0}]}, ("bodies[0].count", "must be an integer, at least 1")),
        (
            {"bodies": [{"count": 1}, {"count": 1, "word": "no"}]},
            ("bodies[1].word", "'no' is none of off, on"),
        ),
        (
            {"named": {"a": {"count": 1, "word": "no"}}},
            ("named[...].word", "'no' is none of off, on"),
        ),
        ([], ("", "must be an object, not a list")),
    ],
)
def test_a_fault_has_its_place_and_the_words_that_would_do(given, fault):
    """A program marks the field of a form by the path; a person sees what to write."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Whole)
    assert faulted(caught.value, Whole) == fault
