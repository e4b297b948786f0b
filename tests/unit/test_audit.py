"""The audit trail: batched, bounded, and readable after a power cut."""

import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import audit
from edged.audit import (
    FOLD_S,
    KEPT,
    SEGMENTS,
    SLICE,
    WHOLE_BURST,
    WHOLE_RATE,
    Record,
    Trail,
    bounded,
    read_segment,
    segments,
)
from edged.clock import iso
from edged.testing.clock import FakeClock

ADA = "ada@example.org"
ROOM = 1 << 20


def record(number=0, user=ADA, **facts):
    when = iso(1_700_000_000.0 + number)
    return Record(when, f"c-{number}", user, "agent", "unix", "hello", "ok", 1.5, **facts)


def trail_at(path, max_bytes=ROOM):
    return Trail(str(path), FakeClock(), max_bytes)


@pytest.fixture
def trail(tmp_path):
    return trail_at(tmp_path / "audit")


def add(trail, count, start=0, **facts):
    for number in range(start, start + count):
        one = record(number, **facts)
        trail.add(lambda one=one: one)


def ids(records):
    return [r.call_id for r in records]


def size_on_disk(path):
    return sum(os.path.getsize(p) for p in segments(str(path)))


def test_a_call_is_one_json_line(trail, tmp_path):
    """Issue 2, part 7: who, what, how long, outcome."""
    trail.add(lambda: record(arguments={"name": "Ada"}))
    trail.flush()
    [path] = segments(str(tmp_path / "audit"))
    assert open_text(path) == (
        '{"time":"2023-11-14T22:13:20.000Z","call_id":"c-0","user":"ada@example.org",'
        '"role":"agent","door":"unix","tool":"hello","outcome":"ok","duration_ms":1.5,'
        '"arguments":{"name":"Ada"}}\n'
    )
    assert os.stat(path).st_mode & 0o777 == 0o600


def open_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_nothing_is_written_until_the_batch_is_due(trail, tmp_path):
    """Facts on SD wear: coalesced, not per call; the first record asks for the timer."""
    asked = []
    trail.on_first = lambda: asked.append(1)
    add(trail, 3)
    assert not os.path.exists(tmp_path / "audit")
    assert asked == [1]
    trail.flush()
    trail.flush()
    add(trail, 1, 3)
    assert asked == [1, 1]
    assert size_on_disk(tmp_path / "audit") > 0


def test_the_newest_are_read_oldest_first(trail):
    add(trail, 5)
    assert ids(trail.recent(3, None)) == ["c-2", "c-3", "c-4"]
    assert trail.recent(0, None) == []
    assert trail.recent(-1, None) == []


def test_a_user_reads_its_own_calls_alone(trail):
    """Contract, section 4: roles."""
    add(trail, 2)
    add(trail, 2, 2, user="bob@example.org")
    assert ids(trail.recent(10, ADA)) == ["c-0", "c-1"]
    assert len(trail.recent(10, None)) == 4


def test_calls_of_an_earlier_run_are_read_before_those_of_this_one(trail, tmp_path):
    add(trail, 3)
    trail.flush()
    again = trail_at(tmp_path / "audit")
    add(again, 1, 3)
    again.flush()
    add(again, 1, 4)
    assert ids(again.recent(10, None)) == ["c-0", "c-1", "c-2", "c-3", "c-4"]
    assert ids(again.recent(10, None)) == ["c-0", "c-1", "c-2", "c-3", "c-4"]


def test_what_is_kept_in_memory_is_bounded(trail, tmp_path):
    add(trail, KEPT + 5)
    trail.flush()
    again = trail_at(tmp_path / "audit")
    add(again, 2, KEPT + 5)
    found = ids(again.recent(KEPT * 2, None))
    assert (len(found), found[0], found[-1]) == (KEPT, "c-7", f"c-{KEPT + 6}")


def test_what_waits_is_bounded_and_none_is_lost(trail, tmp_path):
    """Architecture, laws: every queue is bounded and says what happens when it is full."""
    add(trail, SLICE - 1)
    assert not os.path.exists(tmp_path / "audit")
    add(trail, 1, SLICE - 1)
    [path] = segments(str(tmp_path / "audit"))
    assert ids(read_segment(path)) == [f"c-{n}" for n in range(SLICE)]
    assert trail.lost == 0


def test_a_segment_that_was_dropped_before_it_was_synced_is_no_fault(tmp_path, capsys):
    """A burst may fill and drop segments between two batches."""
    trail = trail_at(tmp_path / "audit", 0)
    add(trail, 10 * SLICE)
    trail.sync()
    assert capsys.readouterr().err == ""
    assert trail.lost == 0


def test_a_segment_that_cannot_be_synced_is_told_once(trail, tmp_path, capsys):
    """A link in its place is not followed (open(2), O_NOFOLLOW)."""
    add(trail, 1)
    trail.write()
    [path] = segments(str(tmp_path / "audit"))
    os.rename(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    trail.sync()
    add(trail, 1, 1)
    trail.flush()
    assert capsys.readouterr().err.count("records are not kept") == 1


def test_a_follower_hears_each_call_at_once(trail):
    """Contract, section 2: `edged log -f`."""
    heard = []
    stop = trail.follow(heard.append)
    add(trail, 2)
    stop()
    stop()
    add(trail, 1, 2)
    assert ids(heard) == ["c-0", "c-1"]
    assert ids(trail.recent(10, None)) == ["c-0", "c-1", "c-2"]


# Bounds -----------------------------------------------------------------------------------


def test_the_size_on_disk_is_bounded_over_many_batches(tmp_path):
    """Contract, section 11: `audit.size` is of all parts together."""
    trail = trail_at(tmp_path / "audit", 64 << 10)
    for batch in range(100):
        add(trail, 20, batch * 20)
        trail.flush()
        assert size_on_disk(tmp_path / "audit") <= 64 << 10
    assert len(segments(str(tmp_path / "audit"))) == SEGMENTS
    assert size_on_disk(tmp_path / "audit") > 40 << 10
    assert ids(trail_at(tmp_path / "audit").recent(1, None)) == ["c-1999"]


def test_one_batch_over_the_whole_bound_keeps_the_newest(tmp_path):
    trail = trail_at(tmp_path / "audit", 64 << 10)
    for batch in range(0, 5_000, 100):
        add(trail, 100, batch, user=f"u{batch}@example.org")
    trail.flush()
    assert size_on_disk(tmp_path / "audit") <= 64 << 10
    kept = [r for path in segments(str(tmp_path / "audit")) for r in read_segment(path)]
    assert ids(kept) == [f"c-{n}" for n in range(5_000 - len(kept), 5_000)]
    assert trail.lost == 0


def test_other_files_beside_the_segments_are_left_alone(tmp_path):
    (tmp_path / "audit").mkdir()
    for name in ("notes.jsonl", "zz.txt", "00000007.jsonl.bak"):
        (tmp_path / "audit" / name).write_text("mine")
    trail = trail_at(tmp_path / "audit", 0)
    for batch in range(10):
        add(trail, 20, batch * 20)
        trail.flush()
    assert (tmp_path / "audit" / "notes.jsonl").read_text() == "mine"
    assert len(segments(str(tmp_path / "audit"))) == SEGMENTS
    assert [os.path.basename(p) for p in segments(str(tmp_path / "audit"))][0].isascii()


def test_segments_are_in_the_order_of_their_numbers(tmp_path):
    for name in ("100000000.jsonl", "99999999.jsonl"):
        (tmp_path / name).touch()
    assert [os.path.basename(p) for p in segments(str(tmp_path))] == [
        "99999999.jsonl",
        "100000000.jsonl",
    ]


@pytest.mark.parametrize("arguments", [None, {"a": 1}, {"a": "x" * 1000}])
def test_small_arguments_are_kept_whole(arguments):
    assert bounded(arguments) == arguments


def test_long_arguments_are_cut_at_1_kb():
    """The record's own bound: never inside a character."""
    cut = bounded({"text": "ä" * 1000})
    assert isinstance(cut, str)
    assert cut.startswith('{"text":"ää')
    assert cut.endswith("ä …")
    assert len(cut.encode()) <= 1024 + 4


# Faults -----------------------------------------------------------------------------------


@given(st.integers(min_value=0), st.binary(max_size=20))
def test_a_torn_last_line_costs_that_line_alone(cut, noise):
    """Facts on power loss: the last batch may be there in part, or as noise."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        trail = trail_at(directory)
        add(trail, 3)
        trail.flush()
        [path] = segments(directory)
        size = os.path.getsize(path)
        cut = cut % size
        with open(path, "r+b") as file:
            file.truncate(cut)
            file.seek(0, os.SEEK_END)
            file.write(noise.replace(b"\n", b""))
        whole = [record(n) for n in range(3)][: open_bytes(path).count(b"\n")]
        again = trail_at(directory)
        add(again, 1, 9)
        again.flush()
        found = read_segment(path)
        assert found[: len(whole)] == whole
        assert found[-1] == record(9)
        assert len(found) <= len(whole) + 2


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("data", [b"[" * 100_000, b'"\xff"', b'{"time": 5}', b"\x00" * 50])
def test_a_broken_line_is_skipped(tmp_path, data):
    path = tmp_path / "00000001.jsonl"
    path.write_bytes(msgspec.json.encode(record(1)) + b"\n" + data + b"\n")
    assert read_segment(str(path)) == [record(1)]


def test_what_cannot_be_read_is_no_segment(tmp_path):
    assert read_segment(str(tmp_path)) == []
    assert segments(str(tmp_path / "none")) == []


def test_a_disk_that_fails_is_told_once_and_calls_go_on(tmp_path, capsys):
    """Facts: log a repeated error once, then count; calls without writes go on."""
    (tmp_path / "audit").write_bytes(b"in the way")
    trail = trail_at(tmp_path / "audit")
    for batch in range(3):
        add(trail, 2, batch * 2)
        trail.flush()
    assert capsys.readouterr().err.count("records are not kept") == 1
    assert trail.lost == 6
    assert len(trail.recent(10, None)) == 6
    os.unlink(tmp_path / "audit")
    add(trail, 1, 6)
    trail.flush()
    assert capsys.readouterr().err.count("is written again") == 1
    assert trail.lost == 6
    assert ids(trail_at(tmp_path / "audit").recent(10, None)) == ["c-6"]


FILLING = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from edged.audit import FOLD_S, SEGMENTS, WHOLE_BURST, WHOLE_RATE, Record, Trail, read_segment, segments
from edged.clock import SystemClock
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
trail = Trail(sys.argv[1], SystemClock(), 1 << 20)
for number in range(12):
    trail.add(lambda number=number: Record("t", f"c-{number}", "u", "agent", "unix", "x", "ok", 1.0))
    trail.flush()
print(trail.lost, [r.call_id for r in trail.recent(99, None)] == [f"c-{n}" for n in range(12)])
"""


def test_a_disk_that_is_full_in_the_middle_of_a_batch_leaves_whole_lines(tmp_path):
    """write(2) takes a part first (RLIMIT_FSIZE, as on a full disk); the part is taken back."""
    done = subprocess.run(
        [sys.executable, "-c", FILLING, str(tmp_path), os.getcwd()],
        capture_output=True,
        text=True,
        check=True,
    )
    lost = int(done.stdout.split()[0])
    assert done.stdout.split()[1] == "True"
    assert done.stderr.count("File too large") == 1
    [path] = segments(str(tmp_path))
    assert open_bytes(path).endswith(b"\n")
    assert 0 < len(read_segment(path)) == 12 - lost < 12


def test_a_link_in_place_of_a_segment_is_not_followed(tmp_path, capsys):
    """open(2), O_NOFOLLOW."""
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "00000001.jsonl").symlink_to(tmp_path / "victim")
    trail = trail_at(tmp_path / "audit")
    add(trail, 1)
    trail.flush()
    assert (tmp_path / "victim").read_bytes() == b""
    assert "records are not kept" in capsys.readouterr().err


@pytest.mark.parametrize("fault", [ValueError, TypeError, RecursionError])
def test_a_record_that_cannot_be_made_does_not_take_the_others_along(trail, fault, capsys):
    def broken():
        raise fault("no")

    add(trail, 1)
    trail.add(broken)
    trail.add(lambda: record(5, arguments="\udcff"))
    add(trail, 1, 1)
    assert ids(trail.recent(10, None)) == ["c-0", "c-1"]
    assert trail.lost == 2
    assert capsys.readouterr().err.count("cannot be written") == 2


def test_a_segment_has_room_for_any_record():
    """The smallest segment holds the longest record: tool 128, detail 300, arguments 1 KB."""
    longest = record(
        arguments=bounded({"x": "ä" * 5000}),
        detail="ä" * 300,
        peer="x" * 200,
        session="x" * 200,
        source="x" * 300,
    )
    longest = msgspec.structs.replace(longest, tool="ä" * 128)
    assert len(msgspec.json.encode(longest)) + 1 < audit.SEGMENT_MIN


# Floods -----------------------------------------------------------------------------------


def test_a_flood_of_one_user_leaves_the_records_of_others(tmp_path):
    """A trail with a bound is no one user's to fill: what exceeds a rate is counted."""
    trail = trail_at(tmp_path / "audit", 1 << 20)
    add(trail, 1, user="bob@example.org")
    add(trail, 50_000)
    trail.flush()
    kept = trail_at(tmp_path / "audit", 1 << 20).recent(1_000, None)
    on_disk = [r for path in segments(str(tmp_path / "audit")) for r in read_segment(path)]
    assert on_disk[0].user == "bob@example.org"
    assert sum(r.count for r in on_disk) == 50_001
    assert len(on_disk) == 2 + WHOLE_BURST
    assert kept[-1].count == 50_000 - WHOLE_BURST
    assert (kept[-1].call_id, kept[-1].time) == (f"c-{WHOLE_BURST}", record(49_999).time)


def test_records_are_folded_by_tool_and_outcome_with_their_mean_time(tmp_path):
    """What is folded still says who did what, how often and how it ended."""
    trail = trail_at(tmp_path / "audit")
    add(trail, WHOLE_BURST)
    for outcome, duration in (("ok", 1.0), ("error", 5.0), ("ok", 2.0), ("ok", 3.0)):
        one = msgspec.structs.replace(record(), outcome=outcome, duration_ms=duration)
        trail.add(lambda one=one: one)
    trail.flush()
    rows = trail.recent(2, None)
    assert [(r.outcome, r.count, r.duration_ms) for r in rows] == [
        ("ok", 3, 2.0),
        ("error", 1, 5.0),
    ]


def test_whoever_calls_at_a_modest_rate_has_each_call_recorded(tmp_path):
    """A token bucket: it fills again."""
    clock = FakeClock()
    trail = Trail(str(tmp_path / "audit"), clock, ROOM)
    for _ in range(WHOLE_BURST + 100):
        clock.advance(1 / WHOLE_RATE)
        add(trail, 1)
    trail.flush()
    assert {r.count for r in trail.recent(1_000, None)} == {1}


def test_what_is_folded_is_written_once_in_a_while_and_not_with_each_batch(tmp_path):
    """Else a burst would be one record a slice."""
    clock = FakeClock()
    trail = Trail(str(tmp_path / "audit"), clock, ROOM)
    add(trail, WHOLE_BURST + 10)
    trail.write()
    assert {r.count for r in trail.recent(1, None)} == {1}
    clock.advance(FOLD_S)
    add(trail, 1)
    trail.write()
    assert trail.recent(1, None)[0].count == 10
