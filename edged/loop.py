"""The daemon's event loop: asyncio's, and sockets that are read where the kernel tells of them.

What reads such a socket is called from the selector itself, before asyncio makes a callback
of its readiness, which costs a third of a short round trip. All else about the socket is
asyncio's as ever: its transport, its end, its errors, what it writes. Under another loop
(a test's, a program's that embeds edged) asyncio reads these sockets too.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
import selectors
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

READ_SIZE = 64 << 10
"""Bytes that are read at once: smaller than what malloc maps anew each time (128 KiB)."""


_NONE: dict[int, Callable[[], bool]] = {}


class Selector(selectors.BaseSelector):
    """`selectors.EpollSelector`, with sockets that are read at once.

    Attributes:
        direct: by descriptor, what reads a socket; false where asyncio is to meet what is
            there, such as its end.
    """

    def __init__(self) -> None:
        self.direct: dict[int, Callable[[], bool]] = {}
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._epoll = select.epoll()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        fd = _number(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._epoll.register(fd, _bits(events))
        self._keys[fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        key = self._keys.pop(_number(fileobj))
        # One that was closed before is forgotten by the kernel already (epoll(7)).
        with contextlib.suppress(OSError):
            self._epoll.unregister(key.fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """See `selectors.BaseSelector`."""
        fd = _number(fileobj)
        key = self._keys[fd]
        if events != key.events:
            self._epoll.modify(fd, _bits(events))
        key = self._keys[fd] = key._replace(events=events, data=data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors.BaseSelector`; sockets that were read are not among the rest.

        Where the loop does not wait, because something is to be done already, they are left
        to it: nothing is read before what came before it.
        """
        ready: list[tuple[selectors.SelectorKey, int]] = []
        keys, direct = self._keys, self.direct
        if timeout is None:
            wait_s = -1.0
        elif timeout > 0:
            # Never shorter than asked for: a timer that is not due yet would be waited for again.
            wait_s = math.ceil(timeout * 1e3) * 1e-3
        else:
            wait_s, direct = 0.0, _NONE
        try:
            found = self._epoll.poll(wait_s, len(keys) or 1)
        except InterruptedError:
            return ready
        for fd, event in found:
            key = keys.get(fd)
            if key is None:
                continue  # what was called for another one before closed it
            if event == select.EPOLLIN and key.events & selectors.EVENT_READ:
                read = direct.get(fd)
                if read is not None and read():
                    continue
            events = selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
            if event & ~select.EPOLLOUT:
                events |= selectors.EVENT_READ
            ready.append((key, events & key.events))
        return ready

    def close(self) -> None:
        """See `selectors.BaseSelector`."""
        self._epoll.close()
        self._keys.clear()
        self.direct.clear()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """See `selectors.BaseSelector`."""
        return _Map(self._keys)


class _Map(Mapping[Any, selectors.SelectorKey]):
    """Keys by descriptors, and by what has one."""

    def __init__(self, keys: dict[int, selectors.SelectorKey]) -> None:
        self._keys = keys

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_number(fileobj)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _number(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


class Loop(asyncio.SelectorEventLoop):
    """asyncio's loop on such a selector."""

    def __init__(self) -> None:
        self._direct = Selector()
        super().__init__(self._direct)

    def read_directly(
        self, transport: asyncio.BaseTransport, received: Callable[[bytes], None]
    ) -> Callable[[], None]:
        """Read a transport's socket where the kernel tells of it.

        Args:
            transport: of a stream socket.
            received: takes what was read, as `asyncio.Protocol.data_received` does.

        Returns:
            How to stop, which is to be done before the socket is closed.
        """
        fd: int = transport.get_extra_info("socket").fileno()

        def read() -> bool:
            try:
                data = os.read(fd, READ_SIZE)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            try:
                received(data)
            except Exception as error:  # noqa: BLE001  as asyncio has it: it costs the connection
                said = {"message": "a connection failed", "exception": error}
                self.call_exception_handler({**said, "transport": transport})
                cast("asyncio.Transport", transport).abort()
            return True

        def stop() -> None:
            self._direct.direct.pop(fd, None)

        self._direct.direct[fd] = read
        return stop


def _bits(events: int) -> int:
    return (select.EPOLLIN if events & selectors.EVENT_READ else 0) | (
        select.EPOLLOUT if events & selectors.EVENT_WRITE else 0
    )
