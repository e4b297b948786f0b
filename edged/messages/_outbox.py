"""The outbox: what was accepted is on disk, and goes out in each channel's order.

Laws: `put` returns when the message survives a power cut. Each channel has at most one
task, and only while something waits for it; no timer runs when the outbox is empty. A
message is tried until it is taken, until the channel says that it never will be, or
until `give_up`; then it is reported. A delivery whose end a crash hides is repeated, by
the same id. Loop thread only; the disk is the spool's thread's.
"""

from __future__ import annotations

import asyncio
import binascii
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from edged import log
from edged.bus._worker import Worker
from edged.clock import Clock
from edged.errors import (
    BusyError,
    Fault,
    InvalidArgumentsError,
    StoppingError,
    StoreError,
    TooLargeError,
)
from edged.events import Events
from edged.identity import Caller
from edged.messages import Attachment, Channel, DeliveryError, Message
from edged.messages._spool import Entry, Spool

SEND_S = 300.0
"""The longest that one step of a delivery may take: 50 MB over a slow line."""

FIRST_RETRY_S, RETRY_MAX_S = 2.0, 300.0
"""Between the first two attempts, and the most between two; doubled from one to the next."""

REASON_MAX = 300
"""Characters of a reason."""


def _chance() -> float:
    """0 to 1; the module `random` costs half a megabyte."""
    return int.from_bytes(os.urandom(2)) / 0xFFFF


class Limits(msgspec.Struct, frozen=True):
    """Bounds of an outbox: messages, bytes on disk, seconds until one is given up."""

    count: int = 1_000
    size: int = 64 << 20
    give_up_s: float = 86_400.0


class Draft(msgspec.Struct, frozen=True):
    """A message as a caller hands it in; see `Message`."""

    text: str = ""
    channel: str = ""
    chat_id: str = ""
    title: str = ""
    priority: int = 0
    reply_to: str = ""


class _Waiting:
    """A message in its lane; `since` is monotonic, so that a jump of the clock ages none."""

    __slots__ = ("attempts", "is_earlier", "message", "order", "since", "size")

    def __init__(self, entry: Entry, since: float, *, is_earlier: bool) -> None:
        self.order, self.message, self.size = entry
        self.since = since
        self.is_earlier = is_earlier
        """Whether an earlier life of the daemon may have tried it too."""
        self.attempts = 0


class _Lane:
    """One channel and what waits for it."""

    __slots__ = (
        "channel",
        "given_up",
        "is_sending",
        "name",
        "next_try",
        "problem",
        "queue",
        "task",
    )

    def __init__(self, name: str, channel: Channel) -> None:
        self.name, self.channel = name, channel
        self.queue: deque[_Waiting] = deque()
        self.task: asyncio.Task[None] | None = None
        self.is_sending = False
        self.problem = ""
        self.given_up = ""
        """Why the last one was not taken; empty once another was."""
        self.next_try = 0.0

    @property
    def is_troubled(self) -> bool:
        """Whether what waits was refused, or the last one was given up."""
        return bool(self.problem if self.queue else self.given_up)

    @property
    def is_busy(self) -> bool:
        """Whether its task runs."""
        return self.task is not None and not self.task.done()


class Outbox:
    """The messages of one data directory."""

    def __init__(
        self,
        directory: str,
        channels: Mapping[str, Channel],
        default: str,
        limits: Limits,
        clock: Clock,
        events: Events,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        mask: Callable[[str], str] = lambda text: text,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = _chance,
    ) -> None:
        """An outbox; nothing is read yet.

        Args:
            directory: of its files.
            channels: by their configured names.
            default: the channel of those who name none.
            limits: its bounds.
            clock: its time.
            events: hear of what was sent and what was given up.
            spawn: starts a task of the daemon's group.
            mask: takes secrets out of a text.
            sleep: how it waits.
            chance: 0 to 1, so that many boards do not come back at the same moment.
        """
        self._spool = Spool(directory)
        self._worker = Worker("outbox")
        self._lanes = {name: _Lane(name, channel) for name, channel in channels.items()}
        self._default, self._limits = default, limits
        self._clock, self._events = clock, events
        self._spawn, self._mask, self._sleep, self._chance = spawn, mask, sleep, chance
        self._opening: asyncio.Task[None] | None = None
        self._is_open = self._is_stopping = False
        self._order = 0
        self._count = self._size = 0
        self._strangers: dict[str, int] = {}
        self._storing: set[asyncio.Task[Message]] = set()
        self._of_user: dict[str, tuple[int, int]] = {}
        self.sent = self.given_up = 0

    # Taking in ----------------------------------------------------------------------------

    def target(self, caller: Caller, channel: str, chat_id: str) -> tuple[str, str]:
        """The channel and chat of a message: named, of the caller's context, or the default.

        Raises:
            InvalidArgumentsError: no such channel.
            DeniedError: the chat may not be named.
        """
        name = channel or caller.channel or self._default
        lane = self._lanes.get(name)
        if lane is None:
            known = ", ".join(sorted(self._lanes))
            where = "" if channel else " of the caller's context"
            reason = f"no channel {name[:64]!r}{where} is configured; there are: {known}"
            raise InvalidArgumentsError([Fault("channel", reason)])
        # The chat of the context is one of the context's channel.
        asked = chat_id or (caller.chat_id if caller.channel in ("", name) else "")
        return name, lane.channel.chat(asked, free=caller.is_owner)

    def file_max(self, channel: str) -> int:
        """Bytes of a file that a channel takes."""
        return self._lanes[channel].channel.file_max

    async def put(
        self, caller: Caller, draft: Draft, file: Attachment | None = None, fd: int = -1
    ) -> Message:
        """Take a message; on return it is on disk and will be delivered or reported.

        Args:
            caller: who sends it.
            draft: what.
            file: what goes with it; its size is what is known of it so far.
            fd: that file, open to be read; closed here, whatever happens.

        Raises:
            InvalidArgumentsError, DeniedError: as `target`.
            TooLargeError: the file is more than the channel takes.
            BusyError: the outbox is full.
            StoreError: the disk does not take it; nothing was sent.
            StoppingError: the daemon stops.
        """
        reserved = False
        size = len(draft.text) + (file.size if file is not None else 0)
        try:
            name, chat = self.target(caller, draft.channel, draft.chat_id)
            limit = self.file_max(name)
            if file is not None and file.size > limit:
                raise TooLargeError(
                    f"{file.name} has {file.size} bytes, over the {limit} that channel {name!r} "
                    "takes: `max_file` of the channel in edged.yaml"
                )
            await self.open()
            if self._is_stopping:
                raise StoppingError
            self._check_room(caller, size)
            self._count_in(caller.user, 1, size)
            reserved = True
        finally:
            if fd >= 0 and not reserved:
                os.close(fd)
        self._order += 1
        message = Message(
            binascii.hexlify(os.urandom(8)).decode(),
            caller.user,
            name,
            chat,
            draft.text,
            self._clock.now(),
            draft.title,
            draft.priority,
            draft.reply_to,
            file,
        )
        # A caller that goes away in between takes nothing with it: it is in the order.
        storing = asyncio.ensure_future(self._store(self._order, message, fd, size))
        self._storing.add(storing)
        storing.add_done_callback(self._stored)
        return await asyncio.shield(storing)

    def _stored(self, task: asyncio.Task[Message]) -> None:
        self._storing.discard(task)
        if not task.cancelled():
            # Looked at, also where nobody waits for it any more.
            task.exception()

    async def _store(self, order: int, message: Message, fd: int, reserved: int) -> Message:
        limit = self.file_max(message.channel)
        try:
            entry = await self._worker.run(self._spool.add, order, message, fd, limit)
        except BaseException:
            self._count_in(message.user, -1, -reserved)
            raise
        finally:
            if fd >= 0:
                os.close(fd)
        self._count_in(message.user, 0, entry.size - reserved)
        self._enqueue(entry, self._clock.monotonic(), is_earlier=False)
        return entry.message

    def _check_room(self, caller: Caller, size: int) -> None:
        limits = self._limits
        # One user's agents leave room for everyone else's.
        share = 1 if caller.is_owner else 2
        most = limits.size // share
        if size > most:
            raise TooLargeError(
                f"a message of {size} bytes is over the {most} that may wait: `size` of "
                "`messages` in edged.yaml"
            )
        count, used = self._of_user.get(caller.user, (0, 0))
        if (
            self._count >= limits.count
            or self._size + size > limits.size
            or count >= max(1, limits.count // share)
            or used + size > most
        ):
            raise BusyError(
                f"{self._count} messages ({self._size >> 10} KiB) wait to be delivered: try "
                f"again later; {self._trouble()}"
            )

    def _trouble(self) -> str:
        rows = [f"{lane.name}: {lane.problem}" for lane in self._lanes.values() if lane.problem]
        return "; ".join(rows) or "the channels take them one after the other"

    def _count_in(self, user: str, count: int, size: int) -> None:
        self._count += count
        self._size += size
        had = self._of_user.get(user, (0, 0))
        now = (had[0] + count, had[1] + size)
        if now[0]:
            self._of_user[user] = now
        else:
            self._of_user.pop(user, None)

    # Life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what waits from an earlier life, and go on with it; once.

        Raises:
            StoreError: it cannot be read; the next call tries again.
        """
        if self._is_open:
            return
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
            self._opening.add_done_callback(self._opened)
        await asyncio.shield(self._opening)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        self._is_open = not task.cancelled() and task.exception() is None

    async def _open(self) -> None:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        entries = await self._worker.run(self._spool.load)
        for entry in entries:
            message = entry.message
            self._order = max(self._order, entry.order)
            self._count_in(message.user, 1, entry.size)
            if message.channel in self._lanes:
                # A clock that was wrong then or is now ages nothing by more than there is.
                age = min(max(0.0, now - message.created), self._limits.give_up_s)
                self._enqueue(entry, monotonic - age, is_earlier=True)
            else:
                found = self._strangers.get(message.channel, 0)
                self._strangers[message.channel] = found + 1
        for name, count in self._strangers.items():
            log.warning(
                f"messages: {count} wait for channel {name!r}, which is not configured any "
                "more: they go out once it is there again"
            )

    async def close(self, grace_s: float) -> None:
        """Let deliveries end that are under way; what waits stays on disk."""
        self._is_stopping = True
        first = [*self._storing, *([self._opening] if self._opening is not None else [])]
        if first:
            await asyncio.wait(first)
        tasks = []
        for lane in self._lanes.values():
            if lane.task is not None and lane.is_busy:
                tasks.append(lane.task)
                if not lane.is_sending:
                    lane.task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for lane in self._lanes.values():
            await lane.channel.close()
        self._worker.close()

    def health(self) -> dict[str, Any]:
        """How it stands, for `status`."""
        now = self._clock.monotonic()
        return {
            "waiting": self._count,
            "bytes": self._size,
            "sent": self.sent,
            # A disk that is full keeps none of them.
            "given_up": max(self.given_up, self._spool.kept()),
            "channels": {
                **{name: _state(lane, now) for name, lane in self._lanes.items()},
                **{n: f"{count} waiting, not configured" for n, count in self._strangers.items()},
            },
            "troubled": [
                *(name for name, lane in self._lanes.items() if lane.is_troubled),
                *self._strangers,
            ],
        }

    # Giving out ---------------------------------------------------------------------------

    def _enqueue(self, entry: Entry, since: float, *, is_earlier: bool) -> None:
        lane = self._lanes[entry.message.channel]
        lane.queue.append(_Waiting(entry, since, is_earlier=is_earlier))
        # Asked of the task itself: a callback at its end comes a turn of the loop late.
        if not lane.is_busy and not self._is_stopping:
            lane.task = self._spawn(self._deliver(lane))

    async def _deliver(self, lane: _Lane) -> None:
        while lane.queue and not self._is_stopping:
            waiting = lane.queue[0]
            waiting.attempts += 1
            lane.is_sending = True
            try:
                await self._attempt(lane, waiting)
            except DeliveryError as error:
                await self._failed(lane, waiting, error)
            else:
                await self._delivered(lane, waiting)
            finally:
                lane.is_sending = False

    async def _attempt(self, lane: _Lane, waiting: _Waiting) -> None:
        channel, path = lane.channel, self._spool.data(waiting.order, waiting.message.id)
        try:
            steps = channel.steps(waiting.message)
            while waiting.message.done < steps:
                async with asyncio.timeout(SEND_S):
                    await channel.send(waiting.message, waiting.message.done, path)
                done = waiting.message.done + 1
                waiting.message = msgspec.structs.replace(waiting.message, done=done)
                if done < steps:
                    await self._note_progress(waiting)
        except TimeoutError:
            raise DeliveryError(f"no end within {SEND_S:g} s") from None
        except (DeliveryError, asyncio.CancelledError):
            raise
        except Exception as error:
            # A fault of ours, or of a library: the message outlives it.
            raise DeliveryError(f"{type(error).__name__}: {error}") from error

    async def _note_progress(self, waiting: _Waiting) -> None:
        try:
            await self._worker.run(self._spool.progress, waiting.order, waiting.message)
        except StoreError as error:
            log.warning(f"{error}: parts of a message may come twice after a crash")

    async def _delivered(self, lane: _Lane, waiting: _Waiting) -> None:
        lane.queue.popleft()
        if lane.problem:
            log.info(f"messages: {lane.name} takes messages again")
        lane.problem = lane.given_up = ""
        self.sent += 1
        await self._forget(waiting, self._spool.remove)
        self._tell("message.sent", waiting, {})

    async def _failed(self, lane: _Lane, waiting: _Waiting, error: DeliveryError) -> None:
        reason = self._shown(lane, error)
        left = waiting.since + self._limits.give_up_s - self._clock.monotonic()
        if error.is_final or left <= 0 or error.retry_after_s > left:
            lane.queue.popleft()
            lane.problem = "" if error.is_final else reason
            lane.given_up = reason
            self.given_up += 1
            count = f"{waiting.attempts} attempt{'s' * (waiting.attempts != 1)}"
            life = " since the start" if waiting.is_earlier else ""
            how = "at once" if error.is_final else f"after {count}{life}"
            # The text is the user's; the log is everyone's who may read it.
            log.error(
                f"messages: {waiting.message.id} of {waiting.message.user} to {lane.name} was "
                f"given up {how}: {reason}"
            )
            await self._forget(waiting, self._spool.give_up, reason, self._clock.now())
            self._tell("message.failed", waiting, {"reason": reason, "text": waiting.message.text})
            return
        if not lane.problem:
            log.warning(f"messages: {lane.name} takes none: {reason}; trying again")
        lane.problem = reason
        delay = min(max(self._backoff(waiting.attempts), error.retry_after_s), left)
        lane.next_try = self._clock.monotonic() + delay
        lane.is_sending = False
        await self._sleep(delay)

    def _backoff(self, attempts: int) -> float:
        longest = min(FIRST_RETRY_S * 2.0 ** min(attempts - 1, 30), RETRY_MAX_S)
        return longest * (0.5 + 0.5 * self._chance())

    async def _forget(self, waiting: _Waiting, act: Callable[..., None], *more: Any) -> None:
        self._count_in(waiting.message.user, -1, -waiting.size)
        try:
            await self._worker.run(act, waiting.order, waiting.message, *more)
        except StoreError as error:
            log.error(f"{error}: the message may be sent again after a restart")

    def _tell(self, kind: str, waiting: _Waiting, more: dict[str, Any]) -> None:
        message = waiting.message
        data = {
            "id": message.id,
            "channel": message.channel,
            "chat_id": message.chat_id,
            "attempts": waiting.attempts,
            **more,
        }
        self._events.publish(kind, message.user, data)

    def _shown(self, lane: _Lane, error: DeliveryError) -> str:
        text = " ".join(str(error).split())
        for secret in lane.channel.secrets:
            if secret:
                text = text.replace(secret, "***")
        text = self._mask(text)
        return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"


def _state(lane: _Lane, now: float) -> str:
    if not lane.queue:
        return f"failed, the last was given up: {lane.given_up}" if lane.given_up else "ok"
    if not lane.problem:
        return f"{len(lane.queue)} on the way"
    wait = max(0.0, lane.next_try - now)
    return f"{len(lane.queue)} waiting, next try in {wait:.0f} s: {lane.problem}"
