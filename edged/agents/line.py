"""The line to a model's server: one question, its streamed answer, and what may go wrong.

Imports aiohttp, so nothing that starts with the daemon imports this. A question that was
not answered is asked again, up to a limit: an answer has no effects until it is whole.
Loop thread only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import aiohttp
import msgspec

from edged import __version__, plugins
from edged.agents.providers import Provider, Question, Reading, Said, ServerFaultError
from edged.clock import patience
from edged.config import seconds
from edged.errors import EdgedError, ModelError, RemoteProtocolError
from edged.results import mask
from edged.sections import ModelProvider

TRIES = 4
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
CONNECT_S = 15.0
EVENT_MAX = 1 << 20
"""Bytes of one event."""

ANSWER_MAX = 16 << 20
"""Bytes of one answer, however it is cut into events."""

TOKEN_MAX = 1_024
"""Bytes of a token as it is sent: an event of its own, with all that is said around it."""

WORDS_MAX = 300
"""Characters of what a server says that are told on."""

REFUSAL_MAX = 4_096
AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 522, 524, 529})
"""Statuses after which the same question may be answered."""

_HINTS = {
    401: "check `api_key` of the provider",
    403: "check `api_key` of the provider",
    404: "{}: see base_url and the model's name",
    405: "{}: see base_url",
}
"""What to look at, by status; with the address that was asked."""

SPENT = frozenset({401, 402, 403, 429})
"""Statuses that another key may not meet."""


class Line:
    """A client of one configured provider.

    Args:
        name: its name in the configuration.
        settings: its settings.
        now: seconds since 1970, for `Retry-After`.
        sleep: how to wait.
        jitter: a number from 0 to 1, so that many do not come back at once.
    """

    def __init__(
        self,
        name: str,
        settings: ModelProvider,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._settings = settings
        self._provider = cast(
            "Provider", plugins.load("edged.agents.providers", settings.kind.replace("-", "_"))
        )
        self.form = self._provider.FORM
        self.base = (settings.base_url or getattr(self._provider, "BASE", "")).rstrip("/")
        self._keys = [key for key in (settings.api_key, *settings.api_keys) if key] or [""]
        self._now, self.sleep, self._jitter = now, sleep, jitter
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(self, question: Question) -> Said:
        """One answer, whole.

        Raises:
            ModelError: there is none, after `TRIES` or at once where trying again is
                of no use; without keys.
        """
        question = msgspec.structs.replace(question, base_url=self.base)
        data = msgspec.json.encode(self._provider.body(question))
        # One event always has room: the last of some servers repeats what was asked.
        most = min(ANSWER_MAX, max(EVENT_MAX, question.max_tokens * TOKEN_MAX))
        wait = FIRST_WAIT_S
        for left in reversed(range(TRIES)):
            try:
                return await self._once(data, most)
            except _Refused as refused:
                rotated = refused.status in SPENT and self._rotate()
                if not left or not (rotated or refused.status in AGAIN):
                    raise self._failed(refused.told()) from None
                asked = 0.0 if rotated else refused.retry_after_s
                if asked > LONGEST_WAIT_S:
                    text = f"{refused}; it asks for {asked:.0f} s of patience"
                    raise self._failed(text) from None
            except (aiohttp.ClientError, OSError, RemoteProtocolError) as error:
                # Who was silent for so long will be so again, and the task's time is short.
                if not left or isinstance(error, aiohttp.SocketTimeoutError):
                    raise self._failed(self._why(error)) from None
                asked = 0.0
            await self.sleep(asked or wait * (1 + self._jitter() / 4))
            wait *= 2
        raise AssertionError("the last try returns or raises")

    def _rotate(self) -> bool:
        self._keys.append(self._keys.pop(0))
        return len(self._keys) > 1

    def _failed(self, why: str) -> ModelError:
        return ModelError(f"model provider {self.name}: {mask(why, self._settings.secrets)}")

    def _why(self, error: Exception) -> str:
        if isinstance(error, ServerFaultError):
            return str(ServerFaultError(_shortened(error.words, self._settings.secrets)))
        if isinstance(error, EdgedError):
            return str(error)
        if isinstance(error, TimeoutError):
            waited = seconds(self._settings.timeout)
            return f"nothing came from {self.base} for {waited:g} s: see `timeout` of the provider"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"no server answers at {self.base}: start it, or mend base_url"
        return f"{self.base} broke off: {str(error) or type(error).__name__}"

    async def _once(self, data: bytes, most: int) -> Said:
        """Ask once.

        Args:
            data: the question.
            most: bytes of the answer.

        Raises:
            _Refused: by a status.
            RemoteProtocolError: the answer makes no sense, or has no end.
            aiohttp.ClientError, OSError: as the network has it.
        """
        if self._session is None:
            timeout = aiohttp.ClientTimeout(
                None, sock_connect=CONNECT_S, sock_read=seconds(self._settings.timeout)
            )
            self._session = aiohttp.ClientSession(
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"edged/{__version__}"},
            )
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            **self._provider.headers(self._keys[0]),
            **self._settings.headers,
        }
        url = self.base + self._provider.PATH
        async with self._session.post(
            url,
            data=data,
            headers=headers,
            allow_redirects=False,
            proxy=self._settings.proxy or None,
        ) as answer:
            if answer.status != 200:
                body = await answer.content.read(REFUSAL_MAX)
                refused = _Refused.of(answer, body, self._now(), self._settings.secrets)
                refused.hint = _HINTS.get(answer.status, "").format(url)
                raise refused
            reading = self._provider.Reading()
            kind, found = answer.content_type, dict[str, Any]()
            try:
                if kind == "application/json":
                    found = _decoded(await _bounded(answer.content, most))
                    reading.whole(found)
                else:
                    await _read(answer.content, reading, most)
                return reading.said()
            except RemoteProtocolError as error:
                if kind == "text/event-stream" or found.get("error"):
                    raise
                raise RemoteProtocolError(
                    f"{url} answers with {kind[:80]}, but no answer of a model: see base_url of "
                    f"the provider ({error})"
                ) from None


async def _read(content: aiohttp.StreamReader, reading: Reading, most: int) -> None:
    async for data in _events(content, most):
        if data.strip() == b"[DONE]" or reading.take(_decoded(data)):
            return


async def _events(content: aiohttp.StreamReader, most: int) -> AsyncIterator[bytes]:
    """The data of server-sent events (HTML Standard, section 9.2); names say nothing more."""
    rest, lines, size = bytearray(), [], 0
    async for piece in content.iter_any():
        size += len(piece)
        if size > most or len(rest) + len(piece) > EVENT_MAX:
            raise _too_large(most)
        # What came before has no end of a line: it is not looked through again.
        end = piece.rfind(b"\n") + 1
        whole = bytes(rest + piece[:end]).split(b"\n")[:-1] if end else []
        if end:
            rest.clear()
        rest += piece[end:]
        for line in whole:
            text = line.rstrip(b"\r")
            if text.startswith(b"data:"):
                lines.append(text[5:].removeprefix(b" "))
            elif not text and lines:
                yield b"\n".join(lines)
                lines = []
    if lines:
        yield b"\n".join(lines)


def _too_large(most: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the model's answer is larger than {most >> 10} KiB")


async def _bounded(content: aiohttp.StreamReader, most: int) -> bytes:
    data = bytearray()
    async for piece in content.iter_any():
        data += piece
        if len(data) > most:
            raise _too_large(most)
    return bytes(data)


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        shown = data[:60].decode("utf-8", "replace")
        raise RemoteProtocolError(f"the model's server sent what is no JSON object: {shown!r}")
    return value


def _shortened(words: str, secrets: tuple[str, ...]) -> str:
    """What a server says. Masked before it is cut: a part of a key is none that is found."""
    return str(mask(words, secrets))[:WORDS_MAX]


class _Refused(Exception):  # noqa: N818  it is caught here
    """A status that is no success."""

    def __init__(self, status: int, words: str, retry_after_s: float) -> None:
        super().__init__(f"HTTP {status}{': ' if words else ''}{words}")
        self.status, self.retry_after_s = status, retry_after_s
        self.hint = ""

    def told(self) -> str:
        """What it says, and what to look at."""
        return f"{self} ({self.hint})" if self.hint else str(self)

    @classmethod
    def of(
        cls, answer: aiohttp.ClientResponse, body: bytes, now: float, secrets: tuple[str, ...]
    ) -> _Refused:
        """What an answer says."""
        try:
            found = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        error: Any = found.get("error", found) if isinstance(found, dict) else None
        said = error.get("message") if isinstance(error, dict) else error
        words = said if isinstance(said, str) else body.decode("utf-8", "replace")
        return cls(
            answer.status,
            _shortened(" ".join(words.split()), secrets),
            patience(answer.headers.get("Retry-After", ""), now),
        )
