"""What is to be done for a job that is due: run, or say what was missed. Pure.

Each time that is due is dealt with exactly once: run, or part of what was missed or
skipped. Late ones become one run at most, so that neither a night without power nor a
clock that was set makes a storm.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import NamedTuple

from edged.cron.job import Job, State

PROMPT_S = 60.0
"""Later than this a run is late, and the misfire policy decides."""

SET_BACK_S = 3 * 3_600.0
"""A clock that is set back by less repeats no time; by more, all is planned anew.

Source: cron(8) of Vixie's cron, which corrects less than three hours likewise.
"""

SET_SINCE = 1_735_689_600.0
"""2025-01-01T00:00:00Z: an earlier clock was not set since the board was switched on."""


class Step(NamedTuple):
    """What is to be done.

    Attributes:
        run: the time that is run for; None is no run.
        missed: the first and the last time that are not run any more.
        skipped: the time that is left out because a run is still going.
        due: when it is due next.
        dealt: the last time that is dealt with by this.
    """

    run: float | None
    missed: tuple[float, float] | None
    skipped: float | None
    due: float | None
    dealt: float


def settle(
    job: Job, state: State, now: float, zone: tzinfo, *, grace_s: float, busy: bool
) -> Step:
    """Deal with every time up to `now`.

    Args:
        job: with a schedule that is due.
        state: where it stands; `due` is not after `now`.
        now: by the wall clock.
        zone: of local times.
        grace_s: a run that was missed by no more is made up for.
        busy: it may not be begun now, for runs of it are going.
    """
    schedule, first = job.schedule, state.due
    assert first is not None  # noqa: S101  the caller looked
    last = schedule.last(first, now, zone)
    following = schedule.next(first, last, zone)
    late = now - last > PROMPT_S
    run = not late or (job.misfire == "once" and now - last <= grace_s)
    if late and first <= state.dealt and not schedule.is_length:
        # Planned anew after the clock was set back: what it shows now may have been before.
        again = schedule.next(first, state.dealt, zone)
        if again is not None and again <= now:
            first = again
        else:
            run = False
    if not run:
        return Step(None, (first, last), None, following, last)
    missed = None
    if first < last:
        missed = first, schedule.last(first, last - 1, zone)
    if busy:
        return Step(None, missed, last, following, last)
    return Step(last, missed, None, following, last)


def replanned(job: Job, state: State, now: float, zone: tzinfo) -> float | None:
    """When a job is due, after the clock was set or the daemon was away.

    Args:
        job: which has a time that it is due.
        state: where it stands.
        now: by the wall clock.
        zone: of local times.
    """
    schedule, due = job.schedule, state.due
    if due is None or schedule.kind == "at":
        return due
    if schedule.is_length:
        if due < SET_SINCE <= now:
            # How much of it passed while the clock was not set, nobody knows.
            return now
        # What comes every so often never waits longer than that; one time is waited for.
        return due if schedule.is_once else min(due, now + schedule.length_s)
    if due < SET_SINCE <= now:
        return schedule.next(due, max(now, state.dealt), zone)
    if SET_SINCE <= now < state.dealt - SET_BACK_S and due > state.dealt:
        return schedule.next(due, now, zone)
    return due
