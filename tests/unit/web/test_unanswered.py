"""Words for a request without an answer: aiohttp's errors as real sockets make them."""

import asyncio
import errno
import os
import socket
import ssl
import subprocess

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver

from edged.web.unanswered import why

BOUND_S = 10.0


class Nowhere(AbstractResolver):
    """Name servers that answer so."""

    def __init__(self, number):
        self.number = number

    async def resolve(self, host, port=0, family=socket.AF_INET):
        raise socket.gaierror(self.number, os.strerror(0))

    async def close(self):
        pass


async def reason(url, resolver=None):
    """What is said of a GET that fails."""
    connector = aiohttp.TCPConnector(resolver=resolver)
    async with asyncio.timeout(BOUND_S), aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises((aiohttp.ClientError, OSError)) as caught:
            async with session.get(url) as answer:
                await answer.read()
    return why(caught.value)


async def served(answer, scheme="http", tls=None):
    """What is said of a server that writes this to everyone, and closes."""

    async def serve(reader, writer):
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        return await reason(f"{scheme}://127.0.0.1:{port}/")


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def test_port_without_a_server_is_told_as_the_kernel_says_it():
    """connect(2), ECONNREFUSED."""
    url = f"http://127.0.0.1:{closed_port()}/"
    assert await reason(url) == f"no connection: {os.strerror(errno.ECONNREFUSED)}"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (socket.EAI_AGAIN, "no name server answers: is the network up?"),
        (socket.EAI_NONAME, "no server of this name is known"),
    ],
)
async def test_unknown_name_and_missing_network_are_told_apart(number, words):
    """getaddrinfo(3), EAI_AGAIN and EAI_NONAME."""
    assert await reason("http://board.example/", Nowhere(number)) == words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "it closed the connection without an answer"),
        (b"220 mail.example ESMTP\r\n", "its answer is no HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
            "it broke off in the middle of its answer",
        ),
    ],
)
async def test_what_is_wrong_with_an_answer_is_said(answer, words):
    """RFC 9112, sections 2.2 and 8."""
    assert await served(answer) == words


async def test_server_without_tls_is_said_to_be_none_of_https():
    """RFC 8446, section 5.1: what comes back is no record."""
    said = await served(b"HTTP/1.1 400 Bad Request\r\n\r\n", "https")
    assert said.startswith("no TLS with it (")
    assert said.endswith("): is it a server of https?")


async def test_certificate_that_nobody_signed_is_not_trusted(tmp_path):
    """X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT (openssl-verify(1))."""
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    options += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *options, "-keyout", "key", "-out", "cert"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    said = await served(b"", "https", context)
    assert said == "its certificate is not trusted: self-signed certificate"
