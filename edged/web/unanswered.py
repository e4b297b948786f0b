"""Why a request over HTTP has no answer, in words for people and not for a library's users."""

from __future__ import annotations

import os
import socket
import ssl

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientConnectorSSLError,
    ClientOSError,
    ClientPayloadError,
    ClientResponseError,
    ServerDisconnectedError,
)

REASON_MAX = 200
"""Characters of what has no other words."""

_BY_TIME = (9, 10)
"""X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED (openssl-verify(1))."""


def why(error: BaseException) -> str:
    """What kept a request from its answer; goes on after the server's name and a colon.

    Args:
        error: aiohttp's, or the kernel's.
    """
    if isinstance(error, ClientConnectorCertificateError):
        return _distrust(error.certificate_error)
    if isinstance(error, ClientConnectorSSLError):
        reason = getattr(error.os_error, "reason", "") or error.os_error
        return f"no TLS with it ({str(reason)[:REASON_MAX]}): is it a server of https?"
    if isinstance(error, ClientConnectorDNSError):
        if error.os_error.errno == socket.EAI_AGAIN:
            return "no name server answers: is the network up?"
        return "no server of this name is known"
    if isinstance(error, ClientConnectorError | ClientOSError):
        return _unconnected(error)
    if isinstance(error, ServerDisconnectedError):
        return "it closed the connection without an answer"
    if isinstance(error, ClientPayloadError):
        return "it broke off in the middle of its answer"
    if isinstance(error, ClientResponseError):
        return "its answer is no HTTP"
    return " ".join(str(error).split())[:REASON_MAX] or type(error).__name__


def _unconnected(error: ClientConnectorError | ClientOSError) -> str:
    cause = getattr(error, "os_error", error)
    for one in (cause, error.__cause__, error.__context__):
        # Through a proxy's tunnel it comes as any other fault of a connection.
        if isinstance(one, ssl.SSLCertVerificationError):
            return _distrust(one)
    number = cause.errno or 0
    return f"no connection: {os.strerror(number) if number > 0 else 'no server answers'}"


def _distrust(error: BaseException) -> str:
    said = str(getattr(error, "verify_message", "")) or "it cannot be verified"
    text = f"its certificate is not trusted: {said}"
    # A board without a clock of its own begins in the past.
    late = getattr(error, "verify_code", 0) in _BY_TIME
    return f"{text}: is the clock right (date)?" if late else text
