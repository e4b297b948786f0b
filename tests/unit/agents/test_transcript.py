"""Transcripts of subagents: bounded, private, and read again after whatever happened."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal

import pytest

from edged.agents.transcript import (
    INTERRUPTED,
    SIZE_MAX,
    End,
    Head,
    Transcript,
    finish,
    forget,
    remembered,
)
from edged.errors import StoreError

END = End("completed", "All is well.", turns=2)


def head(task_id="a1", started="2026-12-01T00:00:00Z"):
    who = ("local", "owner", "uid 0", "feed", "7")
    return Head(task_id, *who, "Look", "look", "", "local", "m", "", started)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "subagents")


def lines(folder, task_id="a1"):
    with open(os.path.join(folder, f"{task_id}.jsonl"), "rb") as file:
        return [json.loads(line) for line in file if line.strip()]


def test_what_happened_is_read_again(folder):
    made = Transcript(folder, head())
    made.add({"type": "user", "text": "Look"})
    made.close(END)
    assert [next(iter(row)) for row in lines(folder)] == ["head", "type", "end"]
    assert remembered(folder) == [(head(), END)]
    assert os.stat(made.path).st_mode & 0o777 == 0o600
    assert os.stat(folder).st_mode & 0o777 == 0o700
    forget(folder, "a1")
    assert remembered(folder) == []


def test_one_of_an_earlier_life_is_given_an_end(folder):
    made = Transcript(folder, head())
    os.truncate(made.path, os.stat(made.path).st_size - 1)
    finish(folder, "a1", END)
    assert remembered(folder) == [(head(), END)]
    caller = head().caller
    assert (caller.who, caller.role, caller.channel, caller.chat_id) == (
        "uid 0", "owner", "feed", "7",
    )  # fmt: skip
    with pytest.raises(StoreError, match="cannot write"):
        finish(folder, "gone", END)


def test_tasks_are_told_in_the_order_of_their_begin(folder):
    for number in (3, 1, 2):
        Transcript(folder, head(f"a{number}", f"2026-12-0{number}T00:00:00Z")).close(END)
    assert [one.task_id for one, _ in remembered(folder)] == ["a1", "a2", "a3"]


@pytest.mark.parametrize("kept", range(0, 400, 7))
def test_one_that_broke_off_anywhere_is_interrupted_or_left_out(folder, kept):
    """A power cut in the middle of any line."""
    made = Transcript(folder, head())
    first = os.stat(made.path).st_size
    made.add({"type": "user", "text": "Look"})
    made.close(END)
    whole = os.stat(made.path).st_size
    os.truncate(made.path, min(kept, whole - 2))
    # Without its line's end the first line is whole too.
    expected = [(head(), INTERRUPTED)] if kept >= first - 1 else []
    assert remembered(folder) == expected


def test_where_nothing_was_begun_nothing_is_remembered(folder):
    assert remembered(folder) == []


@contextlib.contextmanager
def full_disk(path):
    """There is room for ten bytes more: the kernel takes a part of a line first.

    Source: setrlimit(2), RLIMIT_FSIZE: EFBIG.
    """
    size = os.stat(path).st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_too_much_is_counted_and_the_end_is_there(folder):
    made = Transcript(folder, head())
    for _ in range(10):
        made.add({"text": "x" * (SIZE_MAX // 4)})
    made.close(END)
    assert os.stat(made.path).st_size < SIZE_MAX + 1_000
    assert lines(folder)[-1]["lines_left_out"] == 7
    assert remembered(folder) == [(head(), END)]


def test_on_a_full_disk_the_end_is_tried_and_told(folder):
    made = Transcript(folder, head())
    with full_disk(made.path):
        made.add({"type": "user", "text": "Look around"})
        with pytest.raises(StoreError, match=r"cannot write .*/a1\.jsonl: File too large"):
            made.close(END)
    assert remembered(folder) == [(head(), INTERRUPTED)]


def test_after_a_line_that_a_full_disk_cut_the_end_is_a_line_of_its_own(folder):
    made = Transcript(folder, head())
    with full_disk(made.path):
        made.add({"type": "user", "text": "Look around"})
    made.close(END)
    assert remembered(folder) == [(head(), END)]


def test_a_task_of_that_id_is_not_written_over(folder):
    Transcript(folder, head()).close(END)
    with pytest.raises(StoreError, match="File exists"):
        Transcript(folder, head())
    assert remembered(folder) == [(head(), END)]
