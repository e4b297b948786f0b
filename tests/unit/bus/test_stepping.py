"""A driver's coroutine, stepped without a loop."""

import asyncio

import pytest

from edged.bus._stepping import Done, Pause, give_up, step


async def measured(said):
    said.append("began")
    try:
        await Pause(0.5)
        return 21.5
    finally:
        said.append("tidied")
        await Pause(0.1)
        said.append("over")


def test_it_comes_back_to_pause_and_at_its_end():
    work = measured([])
    pauses = [step(work), step(work)]
    assert [pause.seconds for pause in pauses] == [0.5, 0.1]
    done = step(work)
    assert isinstance(done, Done)
    assert done.value == 21.5


def test_what_it_raises_is_raised():
    async def fails():
        raise OSError(5, "")

    with pytest.raises(OSError, match="5"):
        step(fails())


def test_what_needs_a_loop_is_refused():
    """A future is awaited on its loop's thread."""
    work = asyncio.sleep(0)
    with pytest.raises(TypeError, match="awaits its bus and its sleep"):
        step(work)
    work.close()


def test_what_is_given_up_ends_without_its_pauses():
    said = []
    work = measured(said)
    step(work)
    give_up(work, asyncio.CancelledError())
    assert said == ["began", "tidied", "over"]


def test_what_will_not_end_is_ended():
    async def stubborn():
        while True:
            try:
                await Pause(1)
            except asyncio.CancelledError:
                pass

    work = stubborn()
    step(work)
    give_up(work, asyncio.CancelledError())
    with pytest.raises(RuntimeError, match="cannot reuse"):
        work.send(None)


def test_what_had_not_begun_is_given_up_too():
    work = measured([])
    give_up(work, asyncio.CancelledError())
    with pytest.raises(RuntimeError, match="cannot reuse"):
        work.send(None)
