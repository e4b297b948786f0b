"""JSON-RPC 2.0 messages, sans I/O: bytes in, typed messages out, bytes out.

Knows no sockets and no methods. An `id` is kept as the very bytes that came, so
that the reply echoes it to the letter. Source: JSON-RPC 2.0; batches are refused
(MCP since 2025-06-18).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from edged.errors import RemoteProtocolError

MAX_LINE = 16 << 20
"""Bytes of one message (contract, section 5)."""

ID_MAX = 256
"""Bytes of an id as JSON: it is kept while its request is open, and repeated."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class _Id(msgspec.Struct, gc=False):
    id: msgspec.Raw = msgspec.Raw()


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: str = ""
    id: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


_QUOTE = ord('"')
VALUES_MAX = 200_000
"""Values in one JSON text that are made objects of: each costs some dozens of bytes, so that
16 MiB of brackets would take several hundred MiB."""

CROWDED = f"it holds more than {VALUES_MAX:,} values: send fewer, or large data as one text"

_MARKS = rb'"[^"\\]*(?:\\.[^"\\]*)*"|[,\[{]'
"""A whole string, or what stands before a value: a container's bracket, a comma."""


def crowded(data: bytes | bytearray | memoryview) -> bool:
    """Whether a JSON text holds more than `VALUES_MAX` values, whatever its strings hold.

    A look at the bytes alone, before anything is decoded.
    """
    if len(data) <= VALUES_MAX:
        return False
    text = bytes(data)
    if text.count(b",") + text.count(b"[") + text.count(b"{") <= VALUES_MAX:
        return False
    left = VALUES_MAX
    for match in re.finditer(_MARKS, text, re.DOTALL):
        left -= text[match.start()] != _QUOTE
        if left < 0:
            return True
    return False


class Message(NamedTuple):
    """One decoded message.

    Attributes:
        id: raw JSON of the id; empty for a notification.
        method: empty for a response.
        params: raw JSON, or empty bytes.
    """

    id: bytes
    method: str
    params: bytes


_decode = msgspec.json.Decoder(_Envelope).decode
_decode_id = msgspec.json.Decoder(_Id).decode
_encode = msgspec.json.Encoder().encode


def parse(line: bytes | bytearray | memoryview) -> Message:
    """Decode one message.

    Raises:
        RemoteProtocolError: not JSON-RPC; `args[1]` is the error code and
            `args[2]` the raw id where it could be read.
    """
    try:
        envelope = _decode(line)
    except msgspec.ValidationError as error:
        reason = f"not a JSON-RPC request: {error}"
        raise RemoteProtocolError(reason, INVALID_REQUEST, _readable_id(line)) from None
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"not JSON: {error}", PARSE_ERROR, b"") from None
    except RecursionError:
        raise RemoteProtocolError("JSON is nested too deeply", PARSE_ERROR, b"") from None
    raw_id = bytes(envelope.id)
    if envelope.method is None and _is_response(envelope):
        # An error whose request the peer could not read carries no usable id: it is answered
        # by nothing, or two peers would complain to each other without end.
        return Message(raw_id if _is_id(raw_id) else b"", "", b"")
    if raw_id and not _is_id(raw_id):
        reason = f"id must be a string or an integer of at most {ID_MAX} bytes"
        raise RemoteProtocolError(reason, INVALID_REQUEST, b"")
    if envelope.jsonrpc != "2.0":
        raise RemoteProtocolError('"jsonrpc" must be "2.0"', INVALID_REQUEST, raw_id)
    if not envelope.method:
        raise RemoteProtocolError("no method", INVALID_REQUEST, raw_id)
    params = bytes(envelope.params)
    if params and params[0] not in b"{n":
        raise RemoteProtocolError("params must be an object", INVALID_PARAMS, raw_id)
    return Message(raw_id, envelope.method, b"" if params == b"null" else params)


def _is_response(envelope: _Envelope) -> bool:
    return bool(bytes(envelope.result) or bytes(envelope.error))


def _readable_id(line: bytes | bytearray | memoryview) -> bytes:
    """The raw id of a message that is no request otherwise; empty where there is none."""
    try:
        raw_id = bytes(_decode_id(line).id)
    except (msgspec.DecodeError, RecursionError):
        return b""
    return raw_id if _is_id(raw_id) else b""


def _is_id(raw: bytes) -> bool:
    """Whether raw JSON may be echoed as an id: a short string of UTF-8, or an integer."""
    if len(raw) > ID_MAX:
        return False
    if raw.isdigit():
        return True
    first = raw[:1]
    if first != b'"':
        return (first.isdigit() or first == b"-") and not any(c in b".eE" for c in raw)
    if raw.isascii():
        return True
    try:
        # Raw JSON was skipped over, not decoded.
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def result(raw_id: bytes, value: Any) -> bytes:
    """One response line; `value` is anything msgspec encodes, or encoded `Raw`."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (raw_id, _encode(value))


def error(raw_id: bytes, code: int, message: str, data: Any = None) -> bytes:
    """One error line; an unreadable id is answered as null (JSON-RPC, section 5)."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (raw_id or b"null", _encode(body))


def notification(method: str, params: Any) -> bytes:
    """One notification line."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


class Lines:
    """Splits a byte stream into lines; bounded.

    An iterator: lines are cut off one by one, so that whoever stops in between holds
    bytes and no list of lines, and may go on later. A line longer than `limit` is
    dropped up to its end, so that the stream stays in step, and reported once as None.
    One owner, any thread.
    """

    __slots__ = ("_at", "_begun", "_data", "_limit", "_skipping")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._begun = bytearray()
        self._data = b""
        self._at = 0
        self._limit = limit
        self._skipping = False

    @property
    def waiting(self) -> bool:
        """Whether there may be a whole line that was not taken."""
        return self._at < len(self._data)

    @property
    def unfinished(self) -> int:
        """Bytes of the line that has no end yet."""
        return len(self._begun)

    def feed(self, data: bytes) -> Lines:
        """Add what came; returns itself, to be iterated."""
        self._data = self._data[self._at :] + data if self.waiting else data
        self._at = 0
        return self

    def end(self) -> Lines:
        """The stream is over: a last line needs no LF."""
        return self.feed(b"\n")

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> bytes | None:
        """The next line without its LF; blank ones are left out, None is an oversized one."""
        if self._at == len(self._data):
            # The common case: whole lines, nothing kept.
            self._data, self._at = b"", 0
            raise StopIteration
        while (end := self._data.find(b"\n", self._at)) >= 0:
            line = self._data[self._at : end]
            self._at = end + 1
            if self._skipping:
                self._skipping = False
                continue
            if self._begun:
                self._begun += line
                line = bytes(self._begun)
                self._begun = bytearray()
            if len(line) > self._limit:
                return None
            if line and not line.isspace():
                return line
        if not self._keep():
            self._begun = bytearray()
            self._skipping = True
            return None
        raise StopIteration

    def _keep(self) -> bool:
        """Keep what has no end yet; false where it became too long."""
        if not self._skipping:
            self._begun += self._data[self._at :]
        self._data, self._at = b"", 0
        return len(self._begun) <= self._limit
