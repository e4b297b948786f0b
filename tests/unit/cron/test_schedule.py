"""When a job is due."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.cron.schedule import Schedule, parse, shortest_s
from edged.errors import InvalidArgumentsError
from tests.unit.cron.oracle import occurrences

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
YEAR = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
DAY = 86_400


def at(text, zone):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def walk(expression, zone, since, until):
    """All times by the schedule itself."""
    schedule = parse(expression, since, ZoneInfo(zone))
    found, now = [], since
    while (now := schedule.next(0.0, now, ZoneInfo(zone))) is not None and now <= until:
        found.append(now)
    return found


def local(moments, zone):
    return [datetime.fromtimestamp(m, ZoneInfo(zone)).strftime("%d %H:%M%z") for m in moments]


def test_job_at_a_skipped_hour_runs_once_and_as_much_later():
    """RFC 5545, section 3.3.5: a local time that is skipped has the offset from before."""
    since, until = (at(f"2027-03-{day}T12:00", "Europe/Berlin") for day in (27, 29))
    times = walk("30 2 * * *", "Europe/Berlin", since, until)
    assert local(times, "Europe/Berlin") == ["28 03:30+0200", "29 02:30+0200"]


def test_job_in_a_doubled_hour_runs_once_and_in_the_first():
    """RFC 5545, section 3.3.5: a local time that comes twice is the first of them."""
    since, until = (at(f"2027-10-{day}T12:00", "Europe/Berlin") for day in (30, "31"))
    times = walk("30 2 * * *", "Europe/Berlin", since, until)
    assert local(times, "Europe/Berlin") == ["31 02:30+0200"]


@pytest.mark.parametrize("day", ["2027-03-14", "2027-11-07"])
def test_every_twenty_minutes_is_twenty_minutes_on_every_day(day):
    """cron(8) of Vixie's cron: jobs with wildcards follow the clock as it goes."""
    since = at(f"{day}T00:00", "America/New_York")
    times = walk("*/20 * * * *", "America/New_York", since, since + 12 * 3600)
    assert {b - a for a, b in zip(times, times[1:], strict=False)} == {1200.0}


def test_half_hour_of_lord_howe_is_skipped_and_doubled_as_an_hour_elsewhere():
    """IANA time zone database: Lord Howe Island moves by 30 minutes."""
    zone = "Australia/Lord_Howe"
    since, until = at("2027-10-02T12:00", zone), at("2027-10-03T12:00", zone)
    assert local(walk("15 2 * * *", zone, since, until), zone) == ["03 02:45+1100"]
    since, until = at("2027-04-03T12:00", zone), at("2027-04-04T12:00", zone)
    assert local(walk("45 1 * * *", zone, since, until), zone) == ["04 01:45+1100"]
    often = local(walk("45 */1 4 4 *", zone, since, until), zone)
    assert often[:3] == ["04 00:45+1100", "04 01:45+1100", "04 01:45+1030"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "expression",
    [
        "0 9 * * *", "30 2 * * *", "0,30 1-3 * * *", "15 2 * * 0", "*/20 1-3 * * *",
        "45 * * * *", "10 2,3 1-7 3,10,11 *", "0 0 13 * 5", "59 23 31 12 *", "*/30 2 * * *",
        "5 */2 * * 6", "0 3 * 4,10 0",
    ],
)  # fmt: skip
def test_year_of_an_expression_is_that_of_who_counts_through_it(expression, zone):
    """Issue 4, Shows: summer time in three zones, by an oracle that knows no croniter."""
    assert walk(expression, zone, YEAR, YEAR + 366 * DAY) == occurrences(
        expression, zone, YEAR, YEAR + 366 * DAY
    )


def fields(low, high):
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda p: f"{min(p)}-{max(p)}")
    step = st.integers(1, high).map(lambda n: f"*/{n}")
    return st.one_of(
        st.just("*"), number.map(str), span, step,
        st.lists(number, min_size=2, max_size=3, unique=True).map(lambda n: ",".join(map(str, n))),
    )  # fmt: skip


@settings(max_examples=60)
@given(
    expression=st.tuples(
        fields(0, 59), fields(0, 23), st.just("*"), st.just("*"), fields(0, 6)
    ).map(" ".join),
    zone=st.sampled_from(ZONES),
    change=st.sampled_from(["2027-03-14", "2027-03-28", "2027-04-04", "2027-10-03", "2027-10-31"]),
    hours=st.integers(-20, 4),
)
def test_any_expression_around_any_change_of_the_clock(expression, zone, change, hours):
    """As above, for expressions that nobody thought of."""
    since = at(f"{change}T00:00", zone) + hours * 3600
    until = since + DAY
    assert walk(expression, zone, since, until) == occurrences(expression, zone, since, until)


@given(
    expression=st.sampled_from(["*/5 * * * *", "0 9 * * 1", "30 2 * * *", "0 0 1 * *"]),
    zone=st.sampled_from(ZONES),
    days=st.floats(0, 400),
)
def test_last_time_is_the_last_that_is_found_by_walking(expression, zone, days):
    """What is made up for after a night without power is the newest run alone."""
    schedule = Schedule("cron", expression, expression=expression)
    first = schedule.next(0.0, YEAR, ZoneInfo(zone))
    until = first + days * DAY
    last = schedule.last(first, until, ZoneInfo(zone))
    assert first <= last <= until
    assert schedule.next(first, last, ZoneInfo(zone)) > until


def test_every_so_often_counts_from_its_first_time():
    """Fault 2478 of the best-known implementation: the interval drifts."""
    schedule = parse("every 10m", YEAR, UTC)
    due = schedule.first(YEAR, UTC)
    assert schedule.next(due, due + 3 * 600 + 123.4, UTC) == due + 4 * 600
    assert schedule.last(due, due + 3 * 600 + 123.4, UTC) == due + 3 * 600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("in 5m", 300), ("in 90 seconds", 90), ("in 1h 30m", 5400), ("IN 2 days", 2 * DAY)],
)
def test_length_is_read_as_people_write_it(text, seconds):
    """Specification, Automation Tools: `"in 5m"`."""
    assert parse(text, YEAR, UTC).first(YEAR, UTC) == YEAR + seconds


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2027-06-01T09:00", at("2027-06-01T09:00", "Europe/Berlin")),
        ("2027-06-01 09:00:30", at("2027-06-01T09:00:30", "Europe/Berlin")),
        ("2027-06-01T09:00Z", at("2027-06-01T09:00", "UTC")),
        ("2027-06-01T09:00-05:00", at("2027-06-01T14:00", "UTC")),
        ("2027-03-28T02:30", at("2027-03-28T03:30", "Europe/Berlin")),
    ],
)
def test_time_without_a_zone_is_local(text, moment):
    """ISO 8601; RFC 5545, section 3.3.5, for the last, which the clock never shows."""
    assert parse(text, YEAR, ZoneInfo("Europe/Berlin")).at == moment


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9 o'clock", "is no schedule"),
        ("0 9 * *", "is no schedule"),
        ("0 0 9 * * *", "for seconds write every 10s"),
        ("60 9 * * *", "minute '60': '60' is none: write 0 to 59"),
        ("0 9-24 * * *", "hour '9-24': '24' is none: write 0 to 23"),
        ("0 9 0 * *", "day '0': '0' is none: write 1 to 31"),
        ("0 9 * 13 *", "month '13': '13' is none: write 1 to 12, or jan to dec"),
        ("0 9 * * 8", "weekday '8': '8' is none: write 0 to 7, or sun to sat"),
        ("0 9 * * friday", "weekday 'friday': 'friday' is none: write 0 to 7, or sun to sat"),
        ("*/70 * * * *", "minute '*/70': a step is from 1 to 59"),
        ("*/0 * * * *", "minute '*/0': a step is from 1 to 59"),
        ("0 0-12/24 * * *", "hour '0-12/24': a step is from 1 to 23"),
        ("5,,6 * * * *", "minute '5,,6': a value is missing"),
        ("0 9 * * 1,2#1", "mixes what cannot be mixed"),
        ("0 0 30 2 *", "never comes"),
        ("R 9 * * *", "write numbers"),
        ("0 9 * * $(x)", "is no schedule"),
        ("2026-01-01T09:00", "is past: it is 2027-01-01 00:00:00"),
        ("2027-02-30T09:00", "is no time"),
        ("9999-12-31T23:59:59", "is after the year 2200"),
        ("in 5 fortnights", "is no schedule"),
        ("every 0s", "must be from 1 s"),
        ("every 9999w", "must be from 1 s"),
        ("*" * 300, "is over 200 characters"),
    ],
)
def test_what_is_no_schedule_is_refused_when_it_is_said(text, reason):
    """The best-known implementation stores a bad expression, which never runs."""
    with pytest.raises(InvalidArgumentsError, match=re.escape(reason)):
        parse(text, YEAR, UTC)


@pytest.mark.parametrize(
    "expression",
    [
        "0 9 * * mon-fri", "0 9 * JAN,Jul sun", "0 9 1-7/2 * 7", "59 23 31 12 0", "5/10 * * * *",
        "0 9 L * *", "0 9 15W * *", "0 9 ? * fri#2", "0 9 * * L5", "0 22-2 * * *", "00 09 * * *",
    ],
)  # fmt: skip
def test_what_crontabs_have_is_a_schedule(expression):
    """crontab(5), and what croniter takes beside it."""
    assert parse(expression, YEAR, UTC).first(YEAR, UTC) > YEAR


@pytest.mark.parametrize(
    ("expression", "floor", "shortest"),
    [
        ("* * * * *", 60, 60),
        ("0 * * * *", 600, 600),
        ("0-5 9 * * *", 600, 60),
        ("0,59 9 1 1 *", 120, 120),
        ("59 9,10 * * *", 3600, 3600),
        ("0,59 9,10 * * *", 120, 60),
        ("0 0,23 * * *", 7200, 3600),
        ("0 0,23 * * 1", 7200, 7200),
        ("0 0,23 28,29 2 *", 7200, 3600),
    ],
)
def test_burst_of_an_expression_is_seen(expression, floor, shortest):
    """Fault 1655 of the best-known implementation, and a way around a plain floor."""
    assert shortest_s(parse(expression, YEAR, UTC), floor) == shortest


@given(
    st.one_of(
        st.text(max_size=40),
        st.text("0123456789*/,-#?LWlwRHrh ", max_size=30),
        st.lists(st.text("0123456789*/,-#?L", min_size=1, max_size=5), min_size=5, max_size=5).map(
            " ".join
        ),
        st.from_regex(r"(in|every|@)? ?[0-9]{1,3}[a-z]{1,4}", fullmatch=True),
        st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T?[0-9:.Z+-]{0,14}", fullmatch=True),
    )
)
def test_any_text_is_a_schedule_or_is_refused_in_words(text):
    """The library that reads expressions has errors of many kinds."""
    try:
        schedule = parse(text, YEAR, ZoneInfo("Europe/Berlin"))
    except InvalidArgumentsError as error:
        assert str(error).startswith("cron: schedule: ")
        return
    due = schedule.first(YEAR, UTC)
    assert due > YEAR
    assert shortest_s(schedule, 600) > 0
    assert schedule.times(due, 3, UTC)[0] == due
