"""Messages by e-mail: SMTP with STARTTLS or TLS, files as attachments.

`Message-ID` is the same at each attempt: servers and readers that look at it show a
mail once that a crash made come twice; others may show it twice.

Source: RFC 5321 (reply codes, section 4.2.1), RFC 5322, RFC 8314 (ports).
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged.config import Size
from edged.errors import Fault, InvalidArgumentsError
from edged.messages import Chats, DeliveryError, Message, Settings, Surroundings, chosen
from edged.messages._http import check_ca_file
from edged.units import size_bytes

if TYPE_CHECKING:
    import smtplib
    from email.message import EmailMessage

ANSWER_S = 30.0
"""For a connection and for each answer."""

ABORT_S = 2.0
"""How long a thread may take to see that its connection is gone."""

SUBJECT_MAX = 120
"""Characters of a subject that is made of the text."""

PORTS = {"starttls": 587, "tls": 465, "none": 25}

_ADDRESS = re.compile(r"[^\s<>\"(),:;@\\\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,253}")


class Config(Settings, frozen=True, kw_only=True):
    """Settings of a mail account."""

    host: str
    sender: Annotated[str, Meta(description="address that mails come from")] = msgspec.field(
        name="from"
    )
    to: Annotated[str | list[str], Meta(description="addresses that mails go to")] = []
    security: Literal["starttls", "tls", "none"] = "starttls"
    port: Annotated[int, Meta(ge=0, le=65_535, description="0: 587, 465 or 25 by security")] = 0
    username: str = ""
    password: Annotated[str, Meta(description="!secret NAME")] = ""
    subject: Annotated[str, Meta(description="of messages without a title; else their text")] = ""
    chats: Chats = []
    ca_file: Annotated[str, Meta(description="PEM file of who signed the server")] = ""
    max_file: Annotated[Size, Meta(description="of one attachment")] = "15M"

    def __post_init__(self) -> None:
        super().__post_init__()
        if _ADDRESS.fullmatch(self.sender) is None:
            raise ValueError(f"from: {self.sender[:64]!r} is no address such as board@example.org")
        for one in self.own:
            if _ADDRESS.fullmatch(one) is None:
                raise ValueError(f"to: {one[:64]!r} is no address such as ada@example.org")
        if self.security == "none" and self.password:
            raise ValueError("security: a password goes over starttls or tls only")
        check_ca_file(self.ca_file)

    @property
    def own(self) -> list[str]:
        """The addresses of `to`."""
        return [self.to] if isinstance(self.to, str) else self.to


class Mail:
    """One account."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        self._config, self._clock = config, around.clock
        self.file_max = size_bytes(config.max_file)
        self.secrets = (config.password,)

    def chat(self, asked: str, *, free: bool) -> str:
        """An address, or those of the configuration, with commas between them."""
        config = self._config
        found = chosen(asked, ",".join(config.own), config.chats, free=free, what="address")
        if not found:
            reason = "is required: the channel has no `to` in edged.yaml"
            raise InvalidArgumentsError([Fault("chat_id", reason)])
        for one in found.split(","):
            if _ADDRESS.fullmatch(one) is None:
                reason = f"{one[:64]!r} is no address such as ada@example.org"
                raise InvalidArgumentsError([Fault("chat_id", reason)])
        return found

    def steps(self, message: Message) -> int:  # noqa: ARG002  the protocol's
        """One mail."""
        return 1

    async def send(self, message: Message, step: int, path: str) -> None:  # noqa: ARG002  likewise
        """Hand the mail to the server."""
        delivery = _Delivery(self._config, message, path)
        await delivery.run()

    async def close(self) -> None:
        """Nothing is open between mails."""


class _Delivery:
    """One mail on its way, on a thread of its own: `smtplib` blocks."""

    def __init__(self, config: Config, message: Message, path: str) -> None:
        self._config, self._message, self._path = config, message, path
        self._server: smtplib.SMTP | None = None
        self._over = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[DeliveryError | None] = loop.create_future()

        def settle(result: DeliveryError | None) -> None:
            if not done.done():
                done.set_result(result)

        def work() -> None:
            result = self._outcome()
            # A loop that ended has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result)

        thread = threading.Thread(target=work, name="email", daemon=True)
        thread.start()
        try:
            fault = await asyncio.shield(done)
        except asyncio.CancelledError:
            self._abort()
            await asyncio.wait([done], timeout=ABORT_S)
            raise
        if fault is not None:
            raise fault

    def _abort(self) -> None:
        """End the connection under the thread, which then fails at once."""
        self._over = True
        sock = getattr(self._server, "sock", None)
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _outcome(self) -> DeliveryError | None:
        import smtplib  # noqa: PLC0415  with the first mail

        try:
            self._deliver()
        except smtplib.SMTPRecipientsRefused as error:
            codes = list(error.recipients.values())
            is_final = all(500 <= code < 600 for code, _ in codes)
            return DeliveryError(f"SMTP {_words(*codes[0])}", is_final=is_final)
        except smtplib.SMTPAuthenticationError as error:
            # The owner may mend it, and nothing is lost until then.
            words = _words(error.smtp_code, error.smtp_error)
            return DeliveryError(f"the server does not take the password: {words}")
        except smtplib.SMTPResponseException as error:
            is_final = 500 <= error.smtp_code < 600
            text = f"SMTP {_words(error.smtp_code, error.smtp_error)}"
            return DeliveryError(text, is_final=is_final)
        except smtplib.SMTPNotSupportedError as error:
            return DeliveryError(f"the server cannot do that: {error}")
        except (smtplib.SMTPException, OSError) as error:
            return DeliveryError(f"no mail server: {getattr(error, 'strerror', None) or error}")
        except Exception as error:  # noqa: BLE001  it belongs to whoever waits
            return DeliveryError(f"{type(error).__name__}: {error}")
        return None

    def _deliver(self) -> None:
        import smtplib  # noqa: PLC0415  loaded already
        import ssl  # noqa: PLC0415  likewise

        config = self._config
        context = None
        if config.security != "none":
            context = ssl.create_default_context(cafile=config.ca_file or None)
        port = config.port or PORTS[config.security]
        mail = _mail(config, self._message, self._path)
        if config.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                config.host, port, timeout=ANSWER_S, context=context
            )
        else:
            server = smtplib.SMTP(config.host, port, timeout=ANSWER_S)
        self._server = server
        try:
            if self._over:
                return
            if context is not None and config.security == "starttls":
                server.starttls(context=context)
            if config.username:
                server.login(config.username, config.password)
            server.send_message(mail, config.sender, self._message.chat_id.split(","))
        finally:
            # It was taken, or not: how the farewell goes changes nothing.
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
            server.close()


def _words(code: int, text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"{code} {' '.join(words.split())[:200]}"


def _mail(config: Config, message: Message, path: str) -> EmailMessage:
    """The mail of a message."""
    from datetime import UTC, datetime  # noqa: PLC0415  likewise
    from email.message import EmailMessage  # noqa: PLC0415  with the first mail
    from email.policy import SMTP  # noqa: PLC0415  likewise
    from email.utils import format_datetime  # noqa: PLC0415  likewise

    mail: Any = EmailMessage(policy=SMTP)
    first = message.text.strip().partition("\n")[0]
    subject = message.title or config.subject or first or (message.file and message.file.name)
    mail["Subject"] = " ".join(str(subject).split())[:SUBJECT_MAX] or "message"
    mail["From"] = config.sender
    mail["To"] = ", ".join(message.chat_id.split(","))
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.created, UTC))
    mail["Message-ID"] = f"<{message.id}@{config.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    if message.priority >= 4:
        mail["X-Priority"] = "1" if message.priority >= 5 else "2"
    if message.reply_to:
        mail["In-Reply-To"] = " ".join(message.reply_to.split())
    mail.set_content(message.text + "\n")
    if message.file is not None:
        main, _, sub = message.file.mime_type.partition("/")
        with open(path, "rb") as file:
            mail.add_attachment(
                file.read(), maintype=main, subtype=sub, filename=message.file.name
            )
    return mail  # type: ignore[no-any-return]  # the library's stubs know headers only


def open_channel(config: Config, around: Surroundings) -> Mail:
    """An account of these settings."""
    return Mail(config, around)
