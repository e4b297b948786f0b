"""Places for sandboxes go round among users, and no agent has them all."""

import asyncio

import pytest

from edged.errors import BusyError
from edged.sandbox.gate import Gate


async def entered(gate, user, count, *, owner=False):
    """So many calls of a user that ask for a place; done when they have it."""
    tasks = [asyncio.create_task(gate.enter(user, owner=owner)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def having(tasks):
    return sum(task.done() for task in tasks)


async def finish(*groups):
    for task in (task for group in groups for task in group):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_agent_leaves_a_quarter_of_the_places_to_others():
    """One agent's slow calls keep nobody else waiting."""
    gate = Gate(8, 100)
    greedy = await entered(gate, "ada", 20)
    assert having(greedy) == 6
    other = await entered(gate, "root", 3, owner=True)
    assert having(other) == 2
    await finish(greedy, other)


async def test_an_owner_may_have_all_places():
    gate = Gate(8, 100)
    calls = await entered(gate, "root", 9, owner=True)
    assert having(calls) == 8
    await finish(calls)


async def test_free_places_go_round_among_users():
    """In order for each user, in turn among them."""
    gate = Gate(1, 100)
    await gate.enter("a")
    order = ["a"]
    waiting = []
    for user in ("a", "b", "c"):
        waiting += await entered(gate, user, 2)
        for task in waiting[-2:]:
            task.add_done_callback(lambda _, user=user: order.append(user))
    for turn in range(6):
        gate.leave(order[turn])
        await asyncio.gather(*[task for task in waiting if task.done()])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert order == ["a", "a", "b", "c", "a", "b", "c"]


async def test_a_full_queue_refuses_and_one_agent_cannot_fill_it():
    gate = Gate(1, 4)
    holder = await entered(gate, "ada", 1)
    queued = await entered(gate, "ada", 4)
    assert having(queued) == 1
    with pytest.raises(BusyError, match="3 calls wait for a sandbox"):
        queued[3].result()
    other = await entered(gate, "bob", 2)
    with pytest.raises(BusyError, match="4 calls wait"):
        other[1].result()
    await finish(holder, queued, other)


async def test_who_is_cancelled_while_waiting_loses_the_place_to_the_next():
    gate = Gate(1, 4)
    await gate.enter("a")
    first, second = await entered(gate, "a", 2, owner=True)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert gate.waiting == 1
    gate.leave("a")
    await second
    assert gate.waiting == 0


async def test_who_is_cancelled_with_the_place_just_given_gives_it_back():
    """The place and the cancel may come in the same turn of the loop."""
    gate = Gate(1, 4)
    await gate.enter("a")
    (waiting,) = await entered(gate, "b", 1)
    gate.leave("a")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.wait_for(gate.enter("c"), 1)
