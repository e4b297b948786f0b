"""E-mail, against a real SMTP server on this machine (issue 4, part 6)."""

import asyncio
import email
import email.policy
import socket
import ssl
import threading

import pytest
from aiosmtpd.smtp import SMTP, AuthResult

from edged.errors import ConfigError, DeniedError, InvalidArgumentsError
from edged.messages import DeliveryError


class Inbox:
    """A mailbox by RFC 5321, as aiosmtpd serves it."""

    def __init__(self):
        self.mails, self.answer, self.seen = [], "", []

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802
        if address.startswith("nobody@"):
            return "550 5.1.1 no such user"
        if address.startswith("full@"):
            return "452 4.2.2 mailbox full"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server, session, envelope):  # noqa: N802
        if self.answer:
            return self.answer
        found = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, found))
        self.seen.append((session.ssl is not None, session.authenticated))
        return "250 OK"


def authenticate(_server, _session, _envelope, _mechanism, data):
    is_right = (data.login, data.password) == (b"board", b"right words")
    # Not handled: the server itself answers with 535.
    return AuthResult(success=is_right, handled=is_right)


@pytest.fixture
def inbox():
    return Inbox()


@pytest.fixture
async def server(inbox):
    """Starts servers; ended at the end."""
    loop, started = asyncio.get_running_loop(), []

    async def start(ssl_context=None, **options):
        def made():
            return SMTP(inbox, loop=loop, enable_SMTPUTF8=True, **options)

        found = await loop.create_server(made, "127.0.0.1", 0, ssl=ssl_context)
        started.append(found)
        return found.sockets[0].getsockname()[1]

    yield start
    for found in started:
        found.close()
        await found.wait_closed()


def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def mail(channel):
    def make(port, **settings):
        base = {"kind": "email", "host": "localhost", "port": port, "security": "none",
                "from": "board@example.org", "to": "ada@example.org"}  # fmt: skip
        return channel(**{**base, **settings})

    return make


async def test_a_message_is_a_mail(inbox, server, mail, note):
    one = mail(await server())
    message = note(
        chat_id="ada@example.org", text="Grüße ☃\n.\nEnde", title="Frost\r\nBcc: x@y.z", priority=5
    )
    await one.send(message, 0, "")
    [(sender, to, found)] = inbox.mails
    assert (sender, to) == ("board@example.org", ["ada@example.org"])
    assert found["Subject"] == "Frost Bcc: x@y.z"
    assert found["Bcc"] is None
    assert found["Message-ID"] == "<0123456789abcdef@example.org>"
    assert found["Date"] == "Tue, 14 Nov 2023 22:13:20 +0000"
    assert found["X-Priority"] == "1"
    assert found["Auto-Submitted"] == "auto-generated"
    assert found.get_content().splitlines() == ["Grüße ☃", ".", "Ende"]


async def test_a_file_is_an_attachment(inbox, server, mail, note, picture):
    path, file = picture(bytes(range(256)) * 500, "Beet größer.png")
    await mail(await server()).send(note(chat_id="ada@example.org", text="", file=file), 0, path)
    [(_, _, found)] = inbox.mails
    [attachment] = found.iter_attachments()
    assert attachment.get_filename() == "Beet größer.png"
    assert attachment.get_content_type() == "image/png"
    assert attachment.get_content() == bytes(range(256)) * 500
    assert found["Subject"] == "Beet größer.png"


async def test_password_goes_by_starttls(inbox, server, mail, note, certificate):
    """RFC 3207, RFC 4954."""
    port = await server(
        tls_context=tls(certificate), authenticator=authenticate, auth_required=True
    )
    secure = {"security": "starttls", "ca_file": certificate[0], "username": "board"}
    one = mail(port, password="right words", **secure)
    await one.send(note(chat_id="ada@example.org"), 0, "")
    assert inbox.seen == [(True, True)]
    wrong = mail(port, password="wrong words", **secure)
    with pytest.raises(DeliveryError, match="does not take the password: 535") as caught:
        await wrong.send(note(chat_id="ada@example.org"), 0, "")
    assert not caught.value.is_final
    assert wrong.secrets == ("wrong words",)


async def test_tls_from_the_first_byte(inbox, server, mail, note, certificate):
    """RFC 8314, section 3.3."""
    port = await server(ssl_context=tls(certificate))
    await mail(port, security="tls", ca_file=certificate[0]).send(
        note(chat_id="ada@example.org"), 0, ""
    )
    assert len(inbox.mails) == 1
    with pytest.raises(DeliveryError, match="certificate verify failed"):
        await mail(port, security="tls").send(note(chat_id="ada@example.org"), 0, "")


async def test_no_mail_goes_where_starttls_is_not_offered(inbox, server, mail, note):
    with pytest.raises(DeliveryError, match="STARTTLS") as caught:
        await mail(await server(), security="starttls").send(
            note(chat_id="ada@example.org"), 0, ""
        )
    assert not caught.value.is_final
    assert inbox.mails == []


@pytest.mark.parametrize(
    ("address", "is_final"), [("nobody@example.org", True), ("full@example.org", False)]
)
async def test_a_reply_of_5_is_final_one_of_4_is_not(server, mail, note, address, is_final):
    """RFC 5321, section 4.2.1."""
    with pytest.raises(DeliveryError, match="SMTP (550 5.1.1|452 4.2.2)") as caught:
        await mail(await server()).send(note(chat_id=address), 0, "")
    assert caught.value.is_final is is_final


async def test_a_refused_text_is_final(inbox, server, mail, note):
    inbox.answer = "554 5.7.1 looks like spam"
    with pytest.raises(DeliveryError, match="554 5.7.1 looks like spam") as caught:
        await mail(await server()).send(note(chat_id="ada@example.org"), 0, "")
    assert caught.value.is_final


async def test_no_server_is_no_reason_to_give_up(mail, note):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DeliveryError, match="no mail server: Connection refused") as caught:
        await mail(port).send(note(chat_id="ada@example.org"), 0, "")
    assert not caught.value.is_final


async def test_a_server_that_hangs_holds_up_no_stop(mail, note):
    """A stop of the daemon ends the connection under the thread."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        sending = asyncio.ensure_future(mail(port).send(note(chat_id="ada@example.org"), 0, ""))
        link, _ = await asyncio.to_thread(silent.accept)
        with link:
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
    for thread in threading.enumerate():
        if thread.name == "email":
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


def test_agents_name_addresses_of_the_configuration_only(mail):
    one = mail(25, to=["ada@example.org", "bob@example.org"], chats=["eve@example.org"])
    assert one.chat("", free=False) == "ada@example.org,bob@example.org"
    assert one.chat("eve@example.org", free=False) == "eve@example.org"
    with pytest.raises(DeniedError, match="may send to"):
        one.chat("mallory@example.org", free=False)
    for bad in ("x", "a@b,", "a@b\r\nBcc: c@d", "Ada <ada@example.org>"):
        with pytest.raises(InvalidArgumentsError, match="no address"):
            one.chat(bad, free=True)
    with pytest.raises(InvalidArgumentsError, match="chat_id: is required"):
        mail(25, to=[]).chat("", free=True)


def test_a_password_never_goes_in_the_clear(mail):
    with pytest.raises(ConfigError, match="a password goes over starttls or tls only"):
        mail(25, username="board", password="x")
