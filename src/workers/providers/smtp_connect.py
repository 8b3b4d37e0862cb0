"""How an SMTP session begins: the address, the greeting, TLS, the login; aiosmtplib speaks all of it."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache

import aiosmtplib

from ..reply import Reply, Stage
from .base import NotBegun
from .smtp_session import SmtpSession
from .smtp_settings import SmtpSettings
from .smtp_wire import Wire

_DIAL_SECONDS = 30.0
"""Per address. The RFC has no figure; the kernel's two minutes are long for a relay that one has chosen."""


async def connect(settings: SmtpSettings) -> SmtpSession:
    """A session that is ready for MAIL; raises NotBegun."""
    with _stage("connect"):
        sock = await _dial(settings)
    async with _client(settings, sock) as client:
        client.local_hostname = settings.helo or await _own_name(sock)
        with _stage("connect"):
            await client.connect()
        await _hello(client)
        await _secure(client, settings)
        await _login(client, settings)
        assert client.transport is not None
        return SmtpSession(Wire(client.transport), dict(client.esmtp_extensions), settings.timeouts)


async def _dial(settings: SmtpSettings) -> socket.socket:
    """A TCP connection to the first address of the relay that takes one."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    failure = OSError("has no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            async with asyncio.timeout(min(_DIAL_SECONDS, settings.timeouts.greeting)):
                await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


@asynccontextmanager
async def _client(settings: SmtpSettings, sock: socket.socket) -> AsyncIterator[aiosmtplib.SMTP]:
    """A client on this socket, which is closed unless the body ends well."""
    client = aiosmtplib.SMTP(
        hostname=settings.host,
        sock=sock,
        use_tls=settings.tls == "implicit",
        start_tls=False,
        tls_context=settings.context,
        timeout=settings.timeouts.greeting,
    )
    try:
        yield client
    except BaseException:
        client.close()
        sock.close()
        raise


async def _own_name(sock: socket.socket) -> str:
    """RFC 5321 4.1.4: the full name of this machine, or its address where it has none."""
    name = await asyncio.to_thread(_full_name)
    if "." in name and name.isascii():
        return name
    address = sock.getsockname()[0]
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


@cache
def _full_name() -> str:
    """Asks the DNS, which may take seconds: once per process."""
    return socket.getfqdn()


async def _hello(client: aiosmtplib.SMTP) -> None:
    with _stage("ehlo"):
        try:
            await client.ehlo()
        except aiosmtplib.SMTPHeloError as refusal:
            if refusal.code < 500 or not client.is_connected:
                raise
            await client.helo()


async def _secure(client: aiosmtplib.SMTP, settings: SmtpSettings) -> None:
    if settings.tls in ("implicit", "off"):
        return
    if not client.supports_extension("starttls"):
        if settings.tls == "required":
            raise NotBegun(Reply.lost("ehlo", "STARTTLS is required, but the relay does not offer it"))
        return
    if settings.tls == "optional" and settings.is_loopback:
        # Nobody listens in between, and the certificate of such a relay is usually made by nobody.
        return
    with _stage("ehlo"):
        await client.starttls()
    await _hello(client)


async def _login(client: aiosmtplib.SMTP, settings: SmtpSettings) -> None:
    if not settings.user:
        return
    encrypted = client.get_transport_info("sslcontext") is not None
    if not (encrypted or settings.is_loopback or settings.insecure_auth):
        raise NotBegun(Reply.lost("auth", "no password goes over clear text, and the relay does not offer STARTTLS"))
    if not client.supported_auth_methods:
        raise NotBegun(Reply.lost("auth", "the relay does not offer AUTH PLAIN, LOGIN or CRAM-MD5"))
    with _stage("auth"):
        await client.login(settings.user, settings.password)


@contextmanager
def _stage(stage: Stage) -> Iterator[None]:
    """Whatever ends this step is the relay's reply to it, or the absence of one."""
    try:
        yield
    except aiosmtplib.SMTPResponseException as refusal:
        code = refusal.code if 200 <= refusal.code < 600 else None
        text = refusal.message if code is None else f"{code} {refusal.message}"
        raise NotBegun(Reply.parse(stage, code, text)) from refusal
    except (aiosmtplib.SMTPException, OSError) as error:
        raise NotBegun(Reply.lost(stage, _why(error))) from error


def _why(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the certificate of the relay is not good: {cause.verify_message}; "
                "name its authority with ?ca=FILE, or do without the check by ?verify=no"
            )
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason}"
        if isinstance(cause, socket.gaierror):
            return "its name has no address"
        cause = cause.__cause__
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return "connection lost"
