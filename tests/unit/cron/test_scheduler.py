"""What becomes of jobs as time passes, the clock is set and the power goes."""

from datetime import datetime

import pytest

from edged.cron.spec import Spec
from edged.errors import BusyError
from tests.unit.cron.conftest import NOW
from tests.unit.cron.world import DAY, HOUR, OWNER, World


async def test_job_runs_when_it_is_due_and_not_before(world):
    job = await world.add(schedule="in 5m")
    await world.pass_time(299)
    assert world.errands.calls == []
    await world.pass_time(1)
    assert [when for when, *_ in world.errands.calls] == [NOW + 300]
    await world.pass_time(DAY)
    assert len(world.errands.calls) == 1
    assert (await world.get(job.id)).state == "done"


async def test_slow_run_moves_no_later_one(world):
    """Fault 2478 of the best-known implementation: the interval counts from the end."""
    world.errands.outcomes["work"] = (45.0, False, "done")
    job = await world.add(schedule="every 1m")
    await world.pass_time(600)
    assert world.runs(job.id) == [NOW + 60 * n for n in range(1, 11)]


async def test_slow_job_delays_no_other(world):
    """The best-known implementation runs jobs one after the other."""
    world.errands.outcomes["exec"] = (HOUR, False, "done")
    await world.add(schedule="in 1m", command="sleep 3600")
    await world.add(schedule="in 61s")
    await world.pass_time(61)
    assert [(when, name) for when, _, name, _ in world.errands.calls] == [
        (NOW + 60, "exec"),
        (NOW + 61, "work"),
    ]


async def test_failed_run_is_an_error_and_is_tried_again_where_asked(world):
    """Fault 2478 of the best-known implementation: recorded ok, and a one-time job lost."""
    world.errands.outcomes["work"] = (0.0, True, "exit status 1")
    job = await world.add(schedule="in 1m", retries=2)
    await world.pass_time(60)
    seen = await world.get(job.id)
    assert (seen.state, seen.last.status, seen.last.output) == (
        "retrying",
        "error",
        "exit status 1",
    )
    await world.pass_time(30)
    assert len(world.errands.calls) == 2
    world.errands.outcomes.clear()
    await world.get(job.id)
    await world.pass_time(61)
    seen = await world.get(job.id)
    assert (seen.state, seen.last.status, seen.last.attempt) == ("done", "ok", 2)
    assert [run.trigger for run in seen.runs] == ["retry", "retry", "schedule"]
    assert len({run.due for run in seen.runs}) == 1


async def test_failed_job_stays_to_be_seen(world):
    """Fault 2478: a one-time job that failed is not lost."""
    world.errands.outcomes["work"] = (0.0, True, "no such host")
    job = await world.add(schedule="in 1m")
    await world.pass_time(DAY)
    seen = await world.get(job.id)
    assert (seen.state, seen.last.status, seen.last.output) == ("done", "error", "no such host")
    await world.pass_time(7 * DAY)
    await world.add(schedule="every 1h")
    assert job.id not in {one.id for one in (await world.cron.page(OWNER)).jobs}


@pytest.mark.parametrize(
    ("overlap", "starts", "left_out"),
    [
        ("skip", [60, 240, 420], [120, 180, 300, 360]),
        # One waits, and those before it in the same time are left out.
        ("queue", [60, 210, 360], [120, 240]),
        ("parallel", [60, 120, 180, 240, 300, 360, 420], []),
    ],
)
async def test_job_that_is_due_while_it_runs(world, overlap, starts, left_out):
    """Issue 4, part 4: overlap policies."""
    world.errands.outcomes["work"] = (150.0, False, "done")
    job = await world.add(schedule="every 1m", overlap=overlap)
    await world.pass_time(420)
    assert [when - NOW for when, *_ in world.errands.calls] == starts
    skipped = [run for run in world.spans[job.id] if run.status == "skipped"]
    assert [run.due - NOW for run in skipped] == left_out
    assert all(run.output == "the run before was still going" for run in skipped)
    assert not [run for run in world.spans[job.id] if run.status == "missed"]


async def test_job_that_waits_for_its_turn_while_the_daemon_is_down_says_that_it_missed(world):
    """What was due while nothing ran is told as such, also of a job that queues."""
    world.errands.outcomes["work"] = (10.0, False, "done")
    job = await world.add(schedule="every 1m", overlap="queue")
    await world.pass_time(90)
    await world.stop()
    world.clock.advance(300)
    await world.start()
    await world.pass_time(60)
    missed = [run for run in world.spans[job.id] if run.status == "missed"]
    assert missed
    assert not [run for run in world.spans[job.id] if run.status == "skipped"]


async def test_parallel_runs_of_one_job_are_bounded(world):
    world.errands.outcomes["work"] = (HOUR, False, "done")
    job = await world.add(schedule="every 1m", overlap="parallel")
    await world.pass_time(600)
    assert len(world.errands.calls) == 4
    assert len([run for run in world.spans[job.id] if run.status == "skipped"]) == 6


async def test_one_users_slow_jobs_leave_room_for_others(world):
    """A bound of all runs alone would let one agent hold every place."""
    from tests.unit.cron.world import AGENT

    world.errands.outcomes["exec"] = (HOUR, False, "done")
    for _ in range(40):
        await world.add(AGENT, schedule="in 1m", command="sleep 3600")
    await world.add(schedule="in 2m")
    await world.pass_time(120)
    names = [name for _, _, name, _ in world.errands.calls]
    assert names == ["exec"] * 16 + ["work"]
    await world.pass_time(2 * HOUR)
    assert len(world.errands.calls) == 41 - 8, "those that waited over an hour are too late"
    assert len(world.kinds("job.missed")) == 8


# Power and time ---------------------------------------------------------------------------


@pytest.mark.parametrize(("away", "runs"), [(HOUR, 1), (2 * HOUR, 0)])
async def test_one_time_job_whose_hour_passed_runs_late_or_is_reported(world, away, runs):
    """The best-known implementation keeps it enabled, and it never fires."""
    job = await world.add(schedule="in 1m")
    await world.stop()
    world.clock.advance(away)
    await world.start()
    assert len(world.errands.calls) == runs
    seen = await world.get(job.id)
    assert (seen.state, seen.last.status) == ("done", "ok" if runs else "missed")
    assert len(world.kinds("job.missed")) == 1 - runs


async def test_night_without_power_makes_no_storm(world):
    """node-schedule#431: all missed runs in a burst."""
    job = await world.add(schedule="*/10 * * * *")
    await world.stop()
    world.clock.advance(8 * HOUR + 1)
    await world.start()
    assert world.runs(job.id) == [NOW + 8 * HOUR]
    (missed,) = world.spans[job.id]
    assert (missed.due, missed.until) == (NOW + 600, NOW + 8 * HOUR - 600)
    await world.pass_time(600)
    assert len(world.runs(job.id)) == 2


async def test_late_run_is_left_out_where_the_job_says_so(world):
    """Issue 4, part 4: misfire policies."""
    job = await world.add(schedule="0 * * * *", misfire="skip")
    await world.stop()
    world.clock.advance(HOUR + 120)
    await world.start()
    assert world.runs(job.id) == []
    assert [(run.status, run.due) for run in world.spans[job.id]] == [("missed", NOW + HOUR)]


async def test_run_that_the_power_cut_is_interrupted_and_never_begun_again(world):
    """picoclaw#1650: the last message runs again after each restart, without end."""
    world.errands.outcomes["work"] = (HOUR, False, "done")
    job = await world.add(schedule="in 1m")
    await world.pass_time(120)
    await world.power_off()
    await world.start()
    await world.pass_time(DAY)
    assert len(world.errands.calls) == 1
    seen = await world.get(job.id)
    assert (seen.state, seen.last.status) == ("done", "interrupted")
    assert len(world.kinds("job.interrupted")) == 1


async def test_clock_that_is_set_on_at_boot_fires_no_one_time_job_early(folder):
    """A board without an RTC wakes up in 1970, and learns the time from the network."""
    world = World(folder, 100.0)
    await world.start()
    job = await world.add(schedule="in 5m")
    await world.pass_time(60)
    await world.set_clock(NOW)
    assert world.errands.calls == []
    await world.pass_time(240)
    assert [when for when, *_ in world.errands.calls] == [NOW + 400]
    assert (await world.get(job.id)).last.status == "ok"
    await world.stop()


async def test_clock_that_was_never_set_makes_no_runs_up(folder):
    """node-red-contrib-eztimer#52: jobs planned before the time is known keep the wrong hour."""
    world = World(folder, 100.0)
    await world.start()
    daily = await world.add(schedule="0 1 * * *")
    often = await world.add(schedule="every 10m")
    assert daily.state == "waits for the clock"
    await world.pass_time(3 * HOUR)
    assert world.runs(daily.id) == []
    assert len(world.runs(often.id)) == 18
    await world.set_clock(NOW)
    await world.pass_time(DAY)
    assert [datetime.fromtimestamp(due).hour for due in world.runs(daily.id)] == [1]
    assert world.spans[daily.id] == []
    await world.stop()


async def test_board_that_wakes_up_in_1970_makes_up_for_what_it_missed(world):
    """The jobs were there before: what was due while it was off is told, once."""
    job = await world.add(schedule="0 * * * *")
    await world.pass_time(1.5 * HOUR)
    await world.stop()
    world.clock.jump(-world.clock.now() + 30)
    await world.start()
    await world.pass_time(600)
    assert len(world.runs(job.id)) == 1
    await world.set_clock(NOW + 10.25 * HOUR - world.clock.now())
    assert [due - NOW for due in world.runs(job.id)] == [HOUR, 10 * HOUR]
    (missed,) = world.spans[job.id]
    assert (missed.due - NOW, missed.until - NOW) == (2 * HOUR, 9 * HOUR)


async def test_length_goes_on_on_a_board_that_wakes_up_in_1970(world):
    """It needs no clock: a board that never learns the time waters its plants all the same."""
    often = await world.add(schedule="every 10m")
    once = await world.add(schedule="in 3h")
    await world.pass_time(600)
    await world.stop()
    world.clock.jump(100 - world.clock.now())
    await world.start()
    await world.pass_time(HOUR)
    assert len(world.runs(often.id)) == 7
    assert world.runs(once.id) == []
    await world.set_clock(NOW + 2 * HOUR - world.clock.now())
    await world.pass_time(HOUR)
    assert len(world.runs(often.id)) == 13
    assert world.runs(once.id) == [NOW + 3 * HOUR]


async def test_clock_set_back_by_an_hour_repeats_nothing(world):
    """apscheduler#339, cron(8) of Vixie's cron: less than three hours."""
    job = await world.add(schedule="*/10 * * * *")
    await world.pass_time(HOUR)
    await world.set_clock(-HOUR)
    await world.pass_time(HOUR)
    assert len(world.runs(job.id)) == 6
    await world.pass_time(HOUR)
    assert world.runs(job.id) == [NOW + 600 * n for n in range(1, 13)]


async def test_clock_set_back_by_years_plans_anew(world):
    """Someone had set 2036; the jobs must not wait for it."""
    await world.set_clock(3_000 * DAY)
    job = await world.add(schedule="0 * * * *")
    await world.pass_time(2 * HOUR)
    await world.set_clock(-3_000 * DAY)
    await world.pass_time(2 * HOUR)
    assert [due - NOW for due in world.runs(job.id)] == [
        3_000 * DAY + HOUR, 3_000 * DAY + 2 * HOUR, 3 * HOUR, 4 * HOUR,
    ]  # fmt: skip


@pytest.mark.parametrize("delta", [-2.5 * HOUR, 20.0, 2 * DAY])
async def test_length_is_of_the_time_that_passes_whatever_the_clock_says(world, delta):
    """Architecture, Laws: intervals come from the monotonic clock."""
    job = await world.add(schedule="every 10m")
    start = world.clock.boottime()
    for _ in range(5):
        await world.pass_time(700)
        await world.set_clock(delta)
    await world.pass_time(100)
    began = [when for when, *_ in world.errands.calls]
    assert len(began) == 6
    assert len(world.runs(job.id)) == 6
    assert world.clock.boottime() - start == 3600


async def test_what_is_due_while_the_board_sleeps_runs_when_it_wakes(world):
    """The monotonic clock stands during a suspend; the alarm rings at its end."""
    job = await world.add(schedule="in 5m")
    world.clock.suspend(HOUR)
    await world.happen()
    assert world.runs(job.id) == [NOW + 300]
    assert [when for when, *_ in world.errands.calls] == [NOW + HOUR]


async def test_machine_that_moves_to_another_zone_plans_anew(world):
    job = await world.add(schedule="0 9 * * *")
    fixed = await world.add(schedule="0 9 * * *", tz="Europe/Berlin")
    await world.stop()
    world.local = "Asia/Tokyo"
    await world.start()
    assert (await world.get(job.id)).next_run == "2027-01-02T09:00:00.000+09:00"
    assert (await world.get(fixed.id)).next_run == "2027-01-02T09:00:00.000+01:00"


# Idle -------------------------------------------------------------------------------------


async def test_no_timer_is_there_without_a_job(world):
    """Issue 4, part 4: idle CPU zero."""
    assert world.bells == []
    job = await world.add(schedule="every 1h")
    (bell,) = world.bells
    assert bell.when == NOW + HOUR
    await world.cron.remove(OWNER, job.id)
    await world.idle()
    assert bell.closed
    assert world.tasks == set()


async def test_jobs_wait_while_their_tool_is_switched_off(world):
    """The best-known implementation consumes one-time jobs without running them."""
    job = await world.add(schedule="in 1m")
    world.is_on = False
    await world.pass_time(600)
    assert world.runs(job.id) == []
    world.is_on = True
    world.cron.scheduler.stir()
    await world.idle()
    assert world.runs(job.id) == [NOW + 60]


async def test_disabled_job_runs_when_someone_asks_for_it(world):
    job = await world.add(schedule="every 1h")
    await world.cron.enable(OWNER, job.id, False)
    await world.pass_time(3 * HOUR)
    assert world.errands.calls == []
    answer = await world.cron.run(OWNER, job.id)
    assert (answer.run.status, answer.run.trigger) == ("ok", "manual")
    await world.idle()
    await world.cron.enable(OWNER, job.id, True)
    await world.pass_time(HOUR)
    assert world.runs(job.id) == [NOW + 4 * HOUR], "on its old cadence, and nothing made up for"


async def test_second_run_by_hand_waits_its_turn(world):
    world.errands.outcomes["work"] = (HOUR, False, "done")
    job = await world.add(schedule="every 2h")
    await world.cron.run(OWNER, job.id, wait_s=0)
    await world.idle()
    with pytest.raises(BusyError, match="is running"):
        await world.cron.run(OWNER, job.id, wait_s=0)
    await world.pass_time(HOUR)


async def test_job_that_is_removed_while_it_runs_ends_and_is_gone(world):
    world.errands.outcomes["work"] = (HOUR, False, "done")
    job = await world.add(schedule="every 1m")
    await world.pass_time(90)
    await world.cron.remove(OWNER, job.id)
    await world.pass_time(2 * HOUR)
    assert len(world.errands.calls) == 1
    assert (await world.cron.page(OWNER)).total == 0


async def test_changed_schedule_holds_at_once(world):
    job = await world.add(schedule="0 9 * * *")
    await world.cron.update(OWNER, job.id, Spec(every_seconds=120))
    await world.pass_time(240)
    assert world.runs(job.id) == [NOW + 120, NOW + 240]
