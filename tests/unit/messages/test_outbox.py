"""The outbox: durable, in order, once, retried, reported (issue 4, part 6)."""

import asyncio
import json
import os
import time

import pytest

from edged.errors import BusyError, DeniedError, InvalidArgumentsError, StoreError, TooLargeError
from edged.identity import Caller
from edged.messages import Attachment, DeliveryError
from edged.messages._outbox import Draft

ADA = Caller("ada@example.org", "agent", "", "unix", "uid 1000")


def names(post):
    return sorted(n for n in os.listdir(post.directory) if n != "given-up")


def texts(door):
    return [text for _, _, text in door.got]


async def test_what_put_returned_is_on_disk_and_then_delivered(post, door):
    """Part 6: durable before the answer."""
    outbox = post.outbox({"door": door})
    door.hold = asyncio.Event()
    sent = await outbox.put(ADA, Draft("hello"))
    assert names(post) == [f"000000000001-{sent.id}.json"]
    assert (sent.channel, sent.chat_id, sent.user) == ("door", "home", ADA.user)
    door.hold.set()
    await post.settled(outbox)
    assert door.got == [(sent.id, 0, "hello")]
    assert names(post) == []
    assert post.told("message.sent") == [
        {"id": sent.id, "channel": "door", "chat_id": "home", "attempts": 1}
    ]


async def test_no_task_is_there_when_it_is_empty(post, door):
    """Part 6: no timer when it is empty."""
    outbox = post.outbox({"door": door})
    before = asyncio.all_tasks()
    await outbox.open()
    assert asyncio.all_tasks() == before
    await outbox.put(ADA, Draft("hello"))
    await post.settled(outbox)
    assert asyncio.all_tasks() == before
    assert post.waits == []


async def test_order_is_kept_also_when_the_first_has_to_wait(post, door):
    """Part 6: order of each channel."""
    outbox = post.outbox({"door": door})
    door.answers = [DeliveryError("busy"), DeliveryError("busy")]
    for number in range(5):
        await outbox.put(ADA, Draft(str(number)))
    await post.settled(outbox)
    assert texts(door) == ["0", "1", "2", "3", "4"]


async def test_a_channel_that_is_down_holds_up_no_other(post, door, doors):
    """Order is that of one channel."""
    other = doors()
    outbox = post.outbox({"door": door, "other": other})
    door.hold = asyncio.Event()
    await outbox.put(ADA, Draft("first"))
    await outbox.put(ADA, Draft("second", "other"))
    async with asyncio.timeout(10):
        await other.reached.wait()
    while not other.got:
        await asyncio.sleep(0)
    assert (texts(other), door.got) == (["second"], [])
    door.hold.set()


async def test_waits_double_to_a_bound_and_are_scattered(post, door):
    """Part 6: backoff and jitter; of many boards not all come back at once."""
    outbox = post.outbox({"door": door}, chance=iter([1.0, 0.0] * 20).__next__)
    door.answers = [DeliveryError("down")] * 12
    await outbox.put(ADA, Draft("hello"))
    await post.settled(outbox)
    longest = [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]
    assert post.waits == [
        wait * (1.0 if index % 2 == 0 else 0.5) for index, wait in enumerate(longest)
    ]
    assert post.told("message.sent")[0]["attempts"] == 13


async def test_the_other_side_is_left_alone_for_as_long_as_it_asks(post, door):
    """RFC 9110, section 10.2.3."""
    outbox = post.outbox({"door": door})
    door.answers = [DeliveryError("HTTP 429", retry_after_s=1_000.0)]
    await outbox.put(ADA, Draft("hello"))
    await post.settled(outbox)
    assert post.waits == [1_000.0]
    assert texts(door) == ["hello"]


async def test_it_gives_up_in_the_end_and_says_so(post, door, capsys):
    """Part 6: given up after a time with a report as event and in the log."""
    outbox = post.outbox({"door": door}, give_up_s=100.0)
    door.answers = [DeliveryError("no route to swordfish")] * 100
    sent = await outbox.put(ADA, Draft("private words"))
    await post.settled(outbox)
    assert sum(post.waits) == pytest.approx(100.0)
    [report] = post.told("message.failed")
    assert report == {
        "id": sent.id, "channel": "door", "chat_id": "home", "attempts": len(post.waits) + 1,
        "reason": "no route to ***", "text": "private words",
    }  # fmt: skip
    log = capsys.readouterr().err
    assert f"{sent.id} of ada@example.org to door was given up after 7 attempts: no route" in log
    assert "private words" not in log
    assert "swordfish" not in log
    assert names(post) == []
    [kept] = os.listdir(f"{post.directory}/given-up")
    assert sent.id in kept
    # The next one has its own time.
    door.answers.clear()
    await outbox.put(ADA, Draft("later"))
    await post.settled(outbox)
    assert texts(door) == ["later"]


async def test_what_will_never_be_taken_is_given_up_at_once(post, door):
    """A wrong message holds up none behind it."""
    outbox = post.outbox({"door": door})
    door.answers = [DeliveryError("HTTP 400: no such chat", is_final=True)]
    await outbox.put(ADA, Draft("bad"))
    await post.settled(outbox)
    told = outbox.health()["channels"]["door"]
    assert told == "failed, the last was given up: HTTP 400: no such chat"
    assert outbox.health()["troubled"] == ["door"]
    await outbox.put(ADA, Draft("good"))
    await post.settled(outbox)
    assert (outbox.health()["channels"]["door"], outbox.health()["troubled"]) == ("ok", [])
    assert texts(door) == ["good"]
    assert post.waits == []
    assert [one["text"] for one in post.told("message.failed")] == ["bad"]


async def test_a_fault_in_a_channel_costs_no_message(post, door):
    """A bug of a library is as a line that is down."""
    outbox = post.outbox({"door": door})
    door.answers = [KeyError("x")]
    await outbox.put(ADA, Draft("hello"))
    await post.settled(outbox)
    assert texts(door) == ["hello"]


async def test_the_next_life_goes_on_where_the_last_one_ended(post, door, doors):
    """Part 6: survives restarts; the order too."""
    first = post.outbox({"door": door})
    door.hold = asyncio.Event()
    ids = [(await first.put(ADA, Draft(str(number)))).id for number in range(12)]
    await first.close(0.0)
    assert door.closed
    later = doors()
    second = post.outbox({"door": later})
    await second.open()
    await second.put(ADA, Draft("12"))
    await post.settled(second)
    assert texts(later) == [str(number) for number in range(13)]
    assert [name for name, _, _ in later.got][:12] == ids
    assert names(post) == []


async def test_attempts_of_a_later_life_are_told_as_such(post, door, doors, capsys):
    """Those before a restart are not counted."""
    first = post.outbox({"door": door}, give_up_s=100.0)
    door.hold = asyncio.Event()
    await first.put(ADA, Draft("hello"))
    await first.close(0.0)
    later = doors()
    later.answers = [DeliveryError("HTTP 500", retry_after_s=1_000.0)]
    second = post.outbox({"door": later}, give_up_s=100.0)
    await second.open()
    await post.settled(second)
    assert "was given up after 1 attempt since the start: HTTP 500" in capsys.readouterr().err


async def test_steps_behind_it_are_not_sent_again(post, door, doors):
    """Part 6: of a message in parts, a restart repeats one part at most."""
    door.parts = 3
    door.answers = [None, DeliveryError("down")]
    stuck = asyncio.Event()

    async def sleep(_seconds):
        stuck.set()
        await asyncio.Event().wait()

    first = post.outbox({"door": door}, sleep=sleep)
    sent = await first.put(ADA, Draft("hello"))
    async with asyncio.timeout(10):
        await stuck.wait()
    assert [step for _, step, _ in door.got] == [0]
    await first.close(0.0)
    later = doors()
    later.parts = 3
    second = post.outbox({"door": later})
    await second.open()
    await post.settled(second)
    assert [(name, step) for name, step, _ in later.got] == [(sent.id, 1), (sent.id, 2)]


async def test_stopping_lets_a_delivery_end(post, door):
    """What is taken at the last moment does not come twice."""
    outbox = post.outbox({"door": door})
    door.hold = asyncio.Event()
    await outbox.put(ADA, Draft("one"))
    await outbox.put(ADA, Draft("two"))
    async with asyncio.timeout(10):
        await door.reached.wait()
    closing = asyncio.ensure_future(outbox.close(10.0))
    await asyncio.sleep(0)
    door.hold.set()
    await closing
    assert texts(door) == ["one"]
    assert len(names(post)) == 1


async def test_a_jump_of_the_clock_gives_nothing_up(post, door):
    """Boards without a battery: 1970 at the start, today when the network is there."""

    async def sleep(seconds):
        post.clock.jump(50 * 366 * 86_400.0)
        post.clock.advance(seconds)

    outbox = post.outbox({"door": door}, give_up_s=100.0, sleep=sleep)
    door.answers = [DeliveryError("down")]
    await outbox.put(ADA, Draft("hello"))
    await post.settled(outbox)
    assert texts(door) == ["hello"]


async def test_what_is_older_than_it_may_be_is_tried_once_after_a_start(post, door, doors):
    """Down for longer than `give_up`: the message goes out late, or is reported."""
    first = post.outbox({"door": door})
    door.hold = asyncio.Event()
    await first.put(ADA, Draft("late"))
    await first.put(ADA, Draft("too late"))
    await first.close(0.0)
    post.clock.advance(10 * 86_400.0)
    later = doors()
    later.answers = [None, DeliveryError("down")]
    second = post.outbox({"door": later})
    await second.open()
    await post.settled(second)
    assert texts(later) == ["late"]
    assert [one["text"] for one in post.told("message.failed")] == ["too late"]
    assert post.waits == []


async def test_a_caller_that_goes_away_takes_no_message_along(post, door):
    """Fault 1946: delivered regardless of the client's connection."""
    outbox = post.outbox({"door": door})
    # Its file comes slowly, so that storing it takes as long as the test wants.
    reading, writing = os.pipe()
    file = Attachment("slow", "text/plain", 0)
    putting = asyncio.ensure_future(outbox.put(ADA, Draft("hello"), file, reading))
    while not outbox.health()["waiting"]:
        await asyncio.sleep(0)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    os.write(writing, b"data")
    os.close(writing)
    async with asyncio.timeout(10):
        await door.reached.wait()
    await post.settled(outbox)
    assert texts(door) == ["hello"]


async def test_channel_and_chat_are_named_or_the_caller_s_or_the_default(post, door, doors):
    """Contract, sections 4 and 8."""
    outbox = post.outbox({"door": door, "other": doors()})
    here = Caller("ada@example.org", "agent", "", "http", "t", "other", "42")
    assert outbox.target(ADA, "", "") == ("door", "home")
    assert outbox.target(ADA, "other", "7") == ("other", "7")
    assert outbox.target(here, "", "") == ("other", "42")
    # A chat of one channel means nothing in another.
    assert outbox.target(here, "door", "") == ("door", "home")
    with pytest.raises(
        InvalidArgumentsError, match="no channel 'web' is configured; there are: door"
    ):
        outbox.target(ADA, "web", "")
    elsewhere = Caller("ada@example.org", "agent", "", "http", "t", "web", "42")
    with pytest.raises(InvalidArgumentsError, match="'web' of the caller's context"):
        outbox.target(elsewhere, "", "")


async def test_number_and_bytes_are_bounded_and_one_user_leaves_room(post, door):
    """Part 6: bounded in number and bytes."""
    outbox = post.outbox({"door": door}, count=4, size=10_000)
    door.hold = asyncio.Event()
    await outbox.put(ADA, Draft("1"))
    await outbox.put(ADA, Draft("2"))
    with pytest.raises(BusyError, match="2 messages .* wait to be delivered"):
        await outbox.put(ADA, Draft("3"))
    bob = Caller("bob@example.org", "agent", "", "unix", "uid 1001")
    with pytest.raises(TooLargeError, match="over the 5000 that may wait"):
        await outbox.put(bob, Draft("x" * 6_000))
    await outbox.put(bob, Draft("3"))
    await outbox.put(post.core.owner, Draft("4"))
    with pytest.raises(BusyError):
        await outbox.put(post.core.owner, Draft("5"))
    door.hold.set()
    await post.settled(outbox)
    assert texts(door) == ["1", "2", "3", "4"]
    assert outbox.health()["waiting"] == outbox.health()["bytes"] == 0
    await outbox.put(ADA, Draft("6"))


async def test_a_file_is_as_it_was_when_it_was_sent(post, door, tmp_path):
    """Part 6: copied at send time."""
    path = tmp_path / "report.txt"
    path.write_bytes(b"first words")
    outbox = post.outbox({"door": door})
    door.hold = asyncio.Event()
    fd = os.open(path, os.O_RDONLY)
    sent = await outbox.put(ADA, Draft("see"), Attachment("report.txt", "text/plain", 11), fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    path.write_bytes(b"other words, and more")
    door.hold.set()
    await post.settled(outbox)
    assert door.files == [b"first words"]
    assert sent.file.size == 11
    assert names(post) == []


async def test_a_file_that_grows_past_the_bound_leaves_nothing(post, tmp_path, doors):
    """The size that was looked at is not the size that is read."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * 2_000)
    door = doors(file_max=1_000)
    outbox = post.outbox({"door": door})
    for told in (500, 2_000):
        fd = os.open(path, os.O_RDONLY)
        with pytest.raises(TooLargeError, match="log .*1000"):
            await outbox.put(ADA, Draft(), Attachment("log", "text/plain", told), fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    assert outbox.health()["waiting"] == outbox.health()["bytes"] == 0
    assert not os.path.isdir(post.directory) or names(post) == []


async def test_what_the_disk_does_not_take_is_refused(post, door):
    """Nothing is acknowledged that is not there."""
    outbox = post.outbox({"door": door})
    with open(post.directory, "w"):
        pass
    with pytest.raises(StoreError):
        await outbox.put(ADA, Draft("hello"))
    os.unlink(post.directory)
    await outbox.put(ADA, Draft("again"))
    await post.settled(outbox)
    assert texts(door) == ["again"]


async def test_broken_files_are_set_aside_and_strays_removed(post, door, capsys):
    """A broken message is never erased, and never sent."""
    os.makedirs(post.directory)
    good, bad = "0000000000000001", "0000000000000002"
    for name, data in {
        f"000000000001-{bad}.json": b"{",
        f"000000000002-{good}.json.new": b"{",
        "000000000003-0000000000000003.data": b"stray",
        "notes.txt": b"not ours",
    }.items():
        with open(f"{post.directory}/{name}", "wb") as file:
            file.write(data)
    outbox = post.outbox({"door": door})
    await outbox.open()
    await outbox.put(ADA, Draft("hello"))
    await post.settled(outbox)
    assert texts(door) == ["hello"]
    assert names(post) == [f"000000000001-{bad}.json.broken", "notes.txt"]
    assert "was broken" in capsys.readouterr().err


async def test_a_file_that_is_not_whole_is_set_aside_with_its_message(post, doors, tmp_path):
    """What a failing card left: not sent, and not erased by any later start either."""
    path = tmp_path / "a"
    path.write_bytes(b"whole")
    first = doors()
    first.hold = asyncio.Event()
    outbox = post.outbox({"door": first})
    fd = os.open(path, os.O_RDONLY)
    await outbox.put(ADA, Draft("see"), Attachment("a", "text/plain", 5), fd)
    await outbox.close(0.0)
    [data] = [name for name in names(post) if name.endswith(".data")]
    os.truncate(f"{post.directory}/{data}", 3)
    for _ in range(2):
        later = doors()
        outbox = post.outbox({"door": later})
        await outbox.open()
        await post.settled(outbox)
        assert later.got == []
        assert names(post) == [data, data.replace(".data", ".json.broken")]


async def test_what_was_given_up_is_kept_within_a_bound(post, door):
    """The hundred newest, for the owner to look at."""
    outbox = post.outbox({"door": door})
    for number in range(103):
        post.clock.advance(60.0)
        door.answers = [DeliveryError("no", is_final=True)]
        await outbox.put(ADA, Draft(str(number)))
        await post.settled(outbox)
    kept = []
    for name in sorted(os.listdir(f"{post.directory}/given-up")):
        with open(f"{post.directory}/given-up/{name}") as file:
            kept.append(json.load(file)["message"]["text"])
    assert kept == [str(number) for number in range(3, 103)]
    assert outbox.health()["given_up"] == 103
    # The next life tells of those that are kept, before anything is sent.
    assert post.outbox({"door": door}).health()["given_up"] == 100


async def test_messages_of_a_channel_that_is_gone_wait_for_it(post, door, capsys, doors):
    """Taken out of the configuration by mistake, and put back."""
    first = post.outbox({"door": door})
    door.hold = asyncio.Event()
    await first.put(ADA, Draft("hello"))
    await first.close(0.0)
    second = post.outbox({"other": doors()}, default="other")
    await second.open()
    assert "1 wait for channel 'door', which is not configured" in capsys.readouterr().err
    assert second.health()["channels"]["door"] == "1 waiting, not configured"
    assert second.health()["troubled"] == ["door"]
    await second.close(0.0)
    back = doors()
    third = post.outbox({"door": back})
    await third.open()
    await post.settled(third)
    assert texts(back) == ["hello"]


async def test_health_says_what_holds_a_channel_up(post, door, doors):
    """`edged status`."""
    asleep = asyncio.Event()

    async def sleep(_seconds):
        asleep.set()
        await asyncio.Event().wait()

    outbox = post.outbox({"door": door, "other": doors()}, sleep=sleep)
    door.answers = [DeliveryError("HTTP 503 configured-secret")]
    await outbox.put(ADA, Draft("hello"))
    async with asyncio.timeout(10):
        await asleep.wait()
    found = outbox.health()
    assert found["channels"] == {
        "door": "1 waiting, next try in 2 s: HTTP 503 ***", "other": "ok",
    }  # fmt: skip
    assert found["troubled"] == ["door"]
    assert (found["waiting"], found["sent"], found["given_up"]) == (1, 0, 0)
    assert found["bytes"] > 0


async def test_a_denied_chat_stores_nothing(post, door):
    """Contract, section 8: a name never widens a right."""

    def chat(asked, *, free):
        raise DeniedError("no")

    door.chat = chat
    outbox = post.outbox({"door": door})
    with pytest.raises(DeniedError):
        await outbox.put(ADA, Draft("hello"))
    assert not os.path.exists(post.directory)


async def test_a_message_that_comes_as_the_last_one_goes_is_not_left_behind(post, doors):
    """Stored in the very turn of the loop in which its channel's task ends."""
    door, other = doors(), doors()
    outbox = post.outbox({"door": door, "other": other})
    door.hold = asyncio.Event()
    await outbox.put(ADA, Draft("first"))
    async with asyncio.timeout(10):
        await door.reached.wait()
    # The disk is busy with a slow file; behind it come the removal of the first message,
    # the second one, and one that says that all before it is done.
    reading, writing = os.pipe()
    slow = Attachment("slow", "text/plain", 0)
    puts = [asyncio.ensure_future(outbox.put(ADA, Draft("x", "other"), slow, reading))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    door.hold.set()
    while not door.got:
        await asyncio.sleep(0)
    puts += [asyncio.ensure_future(outbox.put(ADA, Draft("second")))]
    puts += [asyncio.ensure_future(outbox.put(ADA, Draft("y", "other")))]
    for _ in range(5):
        await asyncio.sleep(0)
    os.close(writing)
    ended = time.monotonic() + 10.0
    while len([name for name in names(post) if name.endswith(".json")]) < 3:
        # The loop stands still meanwhile, as on a busy board.
        assert time.monotonic() < ended
    await asyncio.gather(*puts)
    await post.settled(outbox)
    assert texts(door) == ["first", "second"]
