"""What the channels over HTTP have in common: one request, and what its answer means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from edged.clock import Clock, patience
from edged.messages import DeliveryError, Settings

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 30.0
"""For a connection, and for an answer that stops coming; large files take longer in all."""

BODY_MAX = 4_096
"""Bytes of an answer that are looked at."""

LATER = frozenset({401, 403, 404, 405, 407, 408, 409, 410, 421, 423, 425, 429})
"""Refusals that say nothing of the message: the owner, or time, may mend them."""


class HttpSettings(Settings, frozen=True):
    """Settings of channels over HTTP."""

    proxy: Annotated[str, Meta(description="http://HOST:PORT that requests go through")] = ""
    ca_file: Annotated[str, Meta(description="PEM file of who signed the server")] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proxy and not self.proxy.startswith(("http://", "https://")):
            raise ValueError("proxy: must begin with http:// or https://")
        check_ca_file(self.ca_file)


def check_url(name: str, url: str) -> None:
    """Raise for a field that is no address; the address itself may be a secret.

    Raises:
        ValueError: begins with the field's name.
    """
    from urllib.parse import urlsplit  # noqa: PLC0415  only where a channel is configured

    try:
        found = urlsplit(url)
        is_right = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError(f"{name}: is no address such as https://example.org/path")


def check_ca_file(path: str) -> None:
    """Raise where `ca_file` cannot be read.

    Raises:
        ValueError: as `check_url`.
    """
    if path:
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ValueError(f"ca_file: {path} cannot be read: {error.strerror}") from None


class Http:
    """A client of one channel, opened with its first request; loop thread only."""

    def __init__(self, settings: HttpSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close its connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, method: str, url: str, **options: Any) -> tuple[int, bytes]:
        """The answer to one request, where it is no refusal.

        Raises:
            DeliveryError: no answer, or a refusal; `body` of the error is not whole.
        """
        status, body, headers = await self.ask(method, url, **options)
        if not 200 <= status < 300:
            raise refusal(status, body, headers.get("Retry-After", ""), self._clock.now())
        return status, body

    async def ask(self, method: str, url: str, **options: Any) -> tuple[int, bytes, Any]:
        """Status, the beginning of the body, and headers.

        Raises:
            DeliveryError: no answer.
        """
        import aiohttp  # noqa: PLC0415  with the first delivery

        if self._session is None:
            timeout = aiohttp.ClientTimeout(None, None, CONNECT_S, CONNECT_S)
            self._session = aiohttp.ClientSession(
                timeout=timeout,
                # A delivery now and then keeps no connection open.
                connector=aiohttp.TCPConnector(force_close=True, ssl=self._tls()),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "edged"},
            )
        try:
            async with self._session.request(
                method,
                url,
                # A redirected POST would become a GET without the message.
                allow_redirects=False,
                proxy=self._settings.proxy or None,
                **options,
            ) as answer:
                return answer.status, await answer.content.read(BODY_MAX), answer.headers
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise DeliveryError(_why(error)) from error

    def _tls(self) -> Any:
        if not self._settings.ca_file:
            return True
        import ssl  # noqa: PLC0415  as aiohttp

        return ssl.create_default_context(cafile=self._settings.ca_file)


def _why(error: BaseException) -> str:
    """What kept a request from its answer, without the address, which may be a secret."""
    import aiohttp  # noqa: PLC0415  loaded already

    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the server's certificate is not trusted: ca_file names who signed it"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no connection: the server's name is not known here"
    if isinstance(error, aiohttp.ClientConnectorError):
        # Not its text: asyncio puts the address there.
        number = error.os_error.errno or 0
        return f"no connection: {os.strerror(number) if number > 0 else 'no server answers'}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    return f"{type(error).__name__}: {getattr(error, 'strerror', None) or 'no answer'}"


def refusal(status: int, body: bytes, retry_after: str, now: float) -> DeliveryError:
    """What a refusal means.

    Args:
        status: HTTP's.
        body: of the answer, cut.
        retry_after: the header, or empty.
        now: seconds since 1970-01-01 UTC.
    """
    words = " ".join(body[:200].decode("utf-8", "replace").split())
    reason = f"HTTP {status}{': ' if words else ''}{words}"
    if 300 <= status < 400:
        reason = f"HTTP {status}: it moved: set the channel's new address"
    is_final = 400 <= status < 500 and status not in LATER
    return DeliveryError(
        reason, is_final=is_final, retry_after_s=0.0 if is_final else patience(retry_after, now)
    )
