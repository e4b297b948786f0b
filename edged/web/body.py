"""Bodies of answers: unpacked and cut at a limit, whatever their server says of them."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from edged.errors import RemoteProtocolError


class Unpacker:
    """Unpacks `gzip` and `deflate` up to a limit; never more is in memory.

    Args:
        coding: of the header Content-Encoding.
        limit: bytes of the whole; what is beyond is dropped.

    Raises:
        RemoteProtocolError: a coding that was not asked for.
    """

    def __init__(self, coding: str, limit: int) -> None:
        self.data = bytearray()
        self.full = False
        self._limit = limit
        self._coding = coding.strip().lower()
        self._unpack: zlib._Decompress | None = None
        if self._coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise RemoteProtocolError(f"it is packed as {self._coding[:20]!r}, unasked")

    def feed(self, piece: bytes) -> None:
        """Take the next piece as it came.

        Raises:
            RemoteProtocolError: it is not what the header says.
        """
        if self.full or not piece:
            return
        if self._coding in ("", "identity"):
            self._add(piece)
            return
        if self._unpack is None:
            self._unpack = zlib.decompressobj(self._window(piece))
        room = self._limit - len(self.data) + 1
        try:
            self._add(self._unpack.decompress(piece, room))
        except zlib.error as error:
            raise RemoteProtocolError(f"its {self._coding} data is broken: {error}") from None

    def _window(self, piece: bytes) -> int:
        if self._coding != "deflate":
            return 16 + zlib.MAX_WBITS
        # The standard means zlib's format, some servers send it bare (RFC 9110, 8.4.1.2).
        return zlib.MAX_WBITS if piece[0] & 0x0F == 8 else -zlib.MAX_WBITS

    def _add(self, piece: bytes) -> None:
        self.data += piece[: self._limit + 1 - len(self.data)]
        if len(self.data) > self._limit:
            self.full = True
            del self.data[self._limit :]


async def read(pieces: AsyncIterator[bytes], coding: str, limit: int) -> tuple[bytes, bool]:
    """The body, and whether it was cut.

    Args:
        pieces: as they come.
        coding: of the header Content-Encoding.
        limit: bytes, unpacked.

    Raises:
        RemoteProtocolError: it cannot be unpacked.
    """
    unpacker = Unpacker(coding, limit)
    async for piece in pieces:
        unpacker.feed(piece)
        if unpacker.full:
            break
    return bytes(unpacker.data), unpacker.full
