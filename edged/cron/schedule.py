"""When a job is due: one-time, every so often, or by a cron expression. Pure.

Times are seconds since 1970-01-01 UTC; `croniter` is only asked about local times
without a zone, and what summer time does to them is decided here:

- An expression with fixed hours and minutes (neither begins with `*`) runs once a
  local time. One in the hour that is skipped runs as much later as the clock was
  set on (02:30 at 03:30); one in the hour that comes twice runs in the first.
- Any other expression is every so often, and follows the clock as it goes: nothing in
  a skipped hour, both times in a doubled one, so that the cadence holds.

Source: cron(8) of Vixie's cron for the two kinds; RFC 5545, section 3.3.5, for the
moment of a local time that is skipped or comes twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

import msgspec

from edged.cron import fields
from edged.errors import Fault, InvalidArgumentsError

Kind = Literal["at", "in", "every", "cron"]

DAY_S = 86_400.0
LENGTH_MAX_S = 3_660 * DAY_S
TEXT_MAX = 200
YEAR_MAX = 2_200

HELP = (
    'write "in 5m", "every 1h", a time such as 2027-01-31T09:00, or a cron expression '
    '"minute hour day month weekday" such as "0 9 * * *"'
)

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": DAY_S, "w": 7 * DAY_S}
_UNIT = (
    r"(\d{1,9}(?:\.\d{1,3})?)\s*"
    r"(s|m|h|d|w|secs?|seconds?|mins?|minutes?|hours?|days?|weeks?)(?=[\s\d]|$)"
)
_RANDOM = r"(?i)(?:^|[\s,])[rh](?:[\s,/(]|$)"
_RANGE_OF_ONE = r"(?<!\w)(\w+)-\1(?:/\d+)?(?!\w)"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  local times without a zone are what croniter takes


class Schedule(msgspec.Struct, frozen=True):
    """When a job is due.

    Attributes:
        kind: `at` a time, `in` and `every` a length, `cron` by an expression.
        text: as it was written.
        tz: the zone's name; empty is the machine's.
        at: of `at`, seconds since 1970-01-01 UTC.
        length_s: of `in` and `every`.
        expression: of `cron`, five fields.
    """

    kind: Kind
    text: str
    tz: str = ""
    at: float = 0.0
    length_s: float = 0.0
    expression: str = ""

    @property
    def is_once(self) -> bool:
        """Whether it is due one time only."""
        return self.kind in ("at", "in")

    @property
    def is_length(self) -> bool:
        """Whether it counts the time that passes, whatever the clock is set to."""
        return self.kind in ("in", "every")

    def first(self, now: float, zone: tzinfo) -> float | None:
        """When it is due first, from `now` on; None is never again."""
        if self.kind == "at":
            return self.at
        if self.is_length:
            return now + self.length_s
        return _next(self.expression, zone, now)

    def next(self, due: float, after: float, zone: tzinfo) -> float | None:
        """The first time after `after`; None is never again.

        Args:
            due: a time at which it is due: what comes `every` so often counts from it.
            after: may be earlier than `due`, or later.
            zone: of local times.
        """
        if self.is_once:
            return due if due > after else None
        if self.kind == "every":
            return due + (math.floor((after - due) / self.length_s) + 1) * self.length_s
        return _next(self.expression, zone, after)

    def last(self, due: float, until: float, zone: tzinfo) -> float:
        """The last time up to `until`, which is not before `due`, a time at which it is due."""
        if self.is_once:
            return due
        if self.kind == "every":
            return due + math.floor((until - due) / self.length_s) * self.length_s
        low, high = due, until
        # Each step asks for the time after the middle: twenty find a minute in two years.
        while high - low >= 1:
            middle = (low + high) / 2
            found = _next(self.expression, zone, middle)
            if found is not None and found <= until:
                low = found
            else:
                high = middle
        return low

    def times(self, due: float, count: int, zone: tzinfo) -> tuple[float, ...]:
        """The next times, `due` the first of them."""
        found = [due]
        while len(found) < count:
            following = self.next(due, found[-1], zone)
            if following is None:
                break
            found.append(following)
        return tuple(found)


def parse(text: str, now: float, zone: tzinfo, tz: str = "") -> Schedule:
    """What someone wrote as a schedule.

    Args:
        text: see `HELP`.
        now: what is one-time must be later.
        zone: of local times.
        tz: its name, as it is kept.

    Raises:
        InvalidArgumentsError: it is none, or never comes.
    """
    text = " ".join(text.split())
    if len(text) > TEXT_MAX:
        raise wrong(f"is over {TEXT_MAX} characters")
    word, _, rest = text.partition(" ")
    if word.lower() in ("in", "every"):
        kind: Kind = "in" if word.lower() == "in" else "every"
        return Schedule(kind, text, tz, length_s=_length(rest, text))
    if re.match(r"\d{4}-\d\d-\d\d", text):
        return Schedule("at", text, tz, at=_moment(text, now, zone))
    expression = _NAMED.get(text.lower(), text)
    count = len(expression.split())
    if count != 5:
        hint = ""
        if count in (6, 7):
            hint = "; seconds and years are not taken: for seconds write every 10s"
        raise wrong(f"{text[:64]!r} is no schedule: {HELP}{hint}")
    _check(expression, now, zone)
    # A range of one number is that number; croniter takes some of them for all numbers.
    expression = re.sub(_RANGE_OF_ONE, r"\1", expression)
    return Schedule("cron", text, tz, expression=expression)


def every(length_s: float, tz: str = "") -> Schedule:
    """A schedule of a length in seconds."""
    return Schedule("every", f"every {_shown(length_s)}", tz, length_s=_bounded(length_s))


def once_in(length_s: float, tz: str = "") -> Schedule:
    """A schedule of one time, so many seconds from now."""
    return Schedule("in", f"in {_shown(length_s)}", tz, length_s=_bounded(length_s))


def shortest_s(schedule: Schedule, floor_s: float) -> float:
    """The shortest time between two runs by the clock, looked at up to `floor_s`.

    Exact where it is below `floor_s`: of an expression with bursts, that of a burst.

    Args:
        schedule: a one-time one has none: the answer is `inf`.
        floor_s: at most a day.
    """
    if schedule.kind == "every":
        return schedule.length_s
    if schedule.is_once:
        return math.inf
    minute, hour, *days = schedule.expression.split()
    if floor_s <= 60:
        return 60.0
    # Any day has the same times: those of one, then the way from its last to the next day's.
    start = _EPOCH + timedelta(seconds=-1)
    times: list[float] = []
    for local in _locals(f"{minute} {hour} * * *", start):
        at = _seconds(local)
        if at >= DAY_S:
            break
        if times and at - times[-1] < floor_s:
            return at - times[-1]
        times.append(at)
    over_night = times[0] + DAY_S - times[-1]
    if over_night < floor_s and _has_two_days_running(" ".join(days)):
        return over_night
    return floor_s


def _has_two_days_running(days: str) -> bool:
    before = None
    # A leap day comes every four years, eight at the turn of some centuries.
    for count, local in enumerate(_locals(f"0 0 {days}", _EPOCH)):
        if before is not None and local - before == timedelta(days=1):
            return True
        if count > 400:
            break
        before = local
    return False


def _length(text: str, whole: str) -> float:
    parts = re.findall(_UNIT, text.lower())
    if not parts or re.sub(_UNIT, "", text.lower()).strip():
        raise wrong(f"{whole[:64]!r} is no schedule: {HELP}")
    return _bounded(sum(float(number) * _UNITS[unit[0]] for number, unit in parts))


def _bounded(length_s: float) -> float:
    if not 1 <= length_s <= LENGTH_MAX_S:
        raise wrong("must be from 1 s to ten years")
    return length_s


def _shown(length_s: float) -> str:
    for unit in "wdhm":
        if length_s >= _UNITS[unit] and length_s % _UNITS[unit] == 0:
            return f"{length_s / _UNITS[unit]:.0f}{unit}"
    return f"{length_s:g}s"


def _moment(text: str, now: float, zone: tzinfo) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(f"{text[:64]!r} is no time: write one such as 2027-01-31T09:00") from None
    try:
        if found.tzinfo is not None:
            at = found.timestamp()
        else:
            at = next(_moments(found, zone, fixed=True))
    except OverflowError:
        at = math.inf
    if found.year > YEAR_MAX:
        raise wrong(f"{text[:64]!r} is after the year {YEAR_MAX}")
    if at <= now:
        here = datetime.fromtimestamp(now, zone).isoformat(" ", "seconds")
        raise wrong(f"{text[:64]!r} is past: it is {here}")
    return at


def _check(expression: str, now: float, zone: tzinfo) -> None:
    if re.search(_RANDOM, expression):
        raise wrong(f"{expression!r}: R and H are chosen anew at each start: write numbers")
    if re.fullmatch(r"[0-9A-Za-z*/,\-#? ]+", expression) is None:
        raise wrong(f"{expression!r} is no schedule: {HELP}")
    if reason := fields.fault(expression):
        raise wrong(f"{expression!r}: {reason}")
    from croniter import CroniterBadCronError, croniter  # noqa: PLC0415  with the first expression

    try:
        croniter(expression, _EPOCH)
    except (CroniterBadCronError, ValueError, KeyError):
        # Each field is one, but not all together: `1,2#1` among the weekdays.
        raise wrong(f"{expression!r} mixes what cannot be mixed: write two jobs") from None
    if _next(expression, zone, now) is None:
        raise wrong(f"{expression!r} never comes: there is no such day")


def _next(expression: str, zone: tzinfo, after: float) -> float | None:
    """The first time of an expression after a moment; None is never."""
    minute, hour = expression.split()[:2]
    fixed = not (minute.startswith("*") or hour.startswith("*"))
    # Around a change of the offset a later local time may come sooner: all that may are
    # looked at. On other days it is the first.
    lowest = min(_offset(after + away, zone) for away in (-DAY_S, 0.0, DAY_S))
    best = math.inf
    for local in _locals(expression, _EPOCH + timedelta(seconds=after + lowest)):
        for moment in _moments(local, zone, fixed=fixed):
            if after < moment < best:
                best = moment
        at = _seconds(local)
        guess = at - _offset(at, zone)
        if best <= at - max(_offset(guess + away, zone) for away in (-DAY_S, DAY_S)):
            break
    return best if best < math.inf else None


def _locals(expression: str, start: datetime) -> Iterator[datetime]:
    """The local times of an expression after `start`, by a clock that is never set."""
    from croniter import CroniterBadDateError, croniter  # noqa: PLC0415  as above

    times = croniter(expression, start, ret_type=datetime)
    while True:
        try:
            found = times.get_next()
        except (CroniterBadDateError, OverflowError):
            return
        yield found


def _moments(local: datetime, zone: tzinfo, *, fixed: bool) -> Iterator[float]:
    """When a local time is: once, in a skipped hour never, in a doubled one twice.

    Args:
        local: without a zone.
        zone: where it is.
        fixed: it is once, whatever the clock does (RFC 5545, section 3.3.5).
    """
    at = _seconds(local)
    # PEP 495: of what is skipped or doubled, fold says which of the two offsets is meant.
    before = _utcoffset(local.replace(tzinfo=zone, fold=0))
    after = _utcoffset(local.replace(tzinfo=zone, fold=1))
    if fixed or before >= after:
        yield at - before
    if before > after and not fixed:
        yield at - after


def _utcoffset(local: datetime) -> float:
    offset = local.utcoffset()
    return offset.total_seconds() if offset is not None else 0.0


def _offset(moment: float, zone: tzinfo) -> float:
    return _utcoffset((_EPOCH.replace(tzinfo=UTC) + timedelta(seconds=moment)).astimezone(zone))


def _seconds(local: datetime) -> float:
    return (local - _EPOCH).total_seconds()


def wrong(reason: str, field: str = "schedule") -> InvalidArgumentsError:
    """The refusal of a job's input."""
    return InvalidArgumentsError([Fault(field, reason)], "cron")
