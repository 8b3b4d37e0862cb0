"""What an SMTP sender URL says, checked: `smtp://user:password@host:587?starttls=required`."""

import ipaddress
import ssl
from functools import cache
from typing import Literal, Self

from attrs import field, frozen

from ...errors import ConfigurationError
from .smtp_session import Timeouts
from .urls import ProviderUrl

Tls = Literal["implicit", "required", "optional", "off"]

_PORTS = {"smtps": 465, "smtp": 25}
_SUBMISSION = 587
_STARTTLS: dict[str, Tls] = {"required": "required", "optional": "optional", "off": "off"}
_OPTIONS = ("timeout", "helo", "ca", "verify")


@frozen
class SmtpSettings:
    """`tls` implicit is smtps://. `helo` None is this machine's own name."""

    host: str
    port: int
    tls: Tls
    user: str
    password: str = field(repr=False)
    insecure_auth: bool
    helo: str | None
    context: ssl.SSLContext | None
    timeouts: Timeouts

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @classmethod
    def read(cls, url: ProviderUrl) -> Self:
        """Raises ConfigurationError."""
        url.refuse_unknown(*(_OPTIONS if url.scheme == "smtps" else ("starttls", *_OPTIONS, "insecure_auth")))
        host = _host(url)
        insecure = url.choice("insecure_auth", "0", "1", default="0") == "1"
        tls = _tls(url, insecure)
        _check_login(url, host, tls, insecure)
        return cls(
            host=host,
            port=url.port or _default_port(url),
            tls=tls,
            user=url.user,
            password=url.password,
            insecure_auth=insecure,
            helo=_helo(url),
            context=None if tls == "off" else _context(url),
            timeouts=Timeouts.scaled(_seconds(url)),
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(url: ProviderUrl) -> str:
    if not url.host:
        raise ConfigurationError(f"sender URL: {url.scheme}:// names no host; write {url.scheme}://relay.example.com")
    if url.path not in ("", "/"):
        raise ConfigurationError(
            f"sender URL: {url.scheme}:// takes no path after the host; in a password write / as %2F"
        )
    if not url.host.isascii():
        raise ConfigurationError(f"sender URL: the host {url.host} must be written in its ASCII form, xn--...")
    return url.host


def _default_port(url: ProviderUrl) -> int:
    return _SUBMISSION if url.scheme == "smtp" and url.user else _PORTS[url.scheme]


def _tls(url: ProviderUrl, insecure: bool) -> Tls:
    if url.scheme == "smtps":
        return "implicit"
    default = "required" if url.user and not insecure else "optional"
    return _STARTTLS[url.choice("starttls", *_STARTTLS, default=default)]


def _check_login(url: ProviderUrl, host: str, tls: Tls, insecure: bool) -> None:
    if bool(url.user) != bool(url.password):
        raise ConfigurationError(
            f"sender URL: {url.scheme}://{host} has a user without a password or the reverse; "
            "write user:password@ or user:env:NAME@"
        )
    if url.user and tls == "off" and not insecure and not is_loopback(host):
        raise ConfigurationError(
            f"sender URL: with starttls=off the password for {host} would travel in clear text; "
            "use starttls=required, or insecure_auth=1 where that is meant"
        )


def _helo(url: ProviderUrl) -> str | None:
    name = url.options.get("helo")
    if name is not None and (not name.isascii() or not name or any(c.isspace() or not c.isprintable() for c in name)):
        raise ConfigurationError("sender URL: option helo must be one ASCII host name")
    return name


def _seconds(url: ProviderUrl) -> float:
    text = url.options.get("timeout", "600")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise ConfigurationError(f"sender URL: option timeout={text} must be a number of seconds, such as 600")
    return seconds


def _context(url: ProviderUrl) -> ssl.SSLContext:
    verify = url.choice("verify", "yes", "no", default="yes") == "yes"
    authority = url.options.get("ca")
    try:
        return _trusting(authority, verify)
    except OSError as error:
        raise ConfigurationError(
            f"sender URL: option ca={authority} names no file of certificates ({error.strerror or error})"
        ) from error


@cache
def _trusting(authority: str | None, verify: bool) -> ssl.SSLContext:
    """Reading the system's authorities takes 20 ms: once is enough for all senders."""
    context = ssl.create_default_context(cafile=authority)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
