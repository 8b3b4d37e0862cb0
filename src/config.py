"""What the environment and the flags say, checked."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from attrs import field, frozen

from .errors import ConfigurationError

DEFAULTS = {"schema": "postledger", "data": ".postledger", "http": "127.0.0.1:8025"}
NAMES = ("database", "listen", "schema", "data", "http", "url")
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

PROVIDERS = ("mailgun", "sendgrid", "ses", "postmark")


@frozen
class Webhooks:
    """By what each provider's posts are known to be theirs; several where one takes another's place.

    They are read from POSTLEDGER_WEBHOOK_MAILGUN and so on, divided by spaces, and never shown.
    """

    mailgun: tuple[str, ...] = ()
    """Webhook signing keys."""
    sendgrid: tuple[str, ...] = ()
    """Public keys of the signed event webhook, in base64."""
    ses: tuple[str, ...] = ()
    """ARNs of the SNS topics."""
    postmark: tuple[str, ...] = ()
    """user:password, as in the address of the webhook."""


@frozen
class Config:
    """Where things are."""

    database: str | None
    """None means the private PostgreSQL under `data`."""
    listen: str | None
    """The direct address for LISTEN where `database` is a pooler; None: `database` serves for both."""
    schema: str
    data: Path
    http: tuple[str, int]
    """Host and port."""
    url: str | None
    """The public base of the links in mails, without a final slash."""
    webhooks: Webhooks = field(factory=Webhooks, repr=False)
    proxies: tuple[Network, ...] = ()
    """From where X-Forwarded-For is believed, beside this machine: POSTLEDGER_PROXIES, divided by spaces or commas."""


@frozen
class _Setting:
    """One value and where it came from, so that an error can say which to change."""

    source: str
    value: str

    def wrong(self, what: str, remedy: str) -> ConfigurationError:
        return ConfigurationError(f"{self.source} is {redact(self.value)!r}, {what}: {remedy}")


def load(environ: Mapping[str, str], **flags: str | None) -> Config:
    """Flags (`database`, `schema`, ...: those of NAMES) win over POSTLEDGER_*; empty means unset.

    Raises ConfigurationError naming the variable or flag, the value without its password, and the remedy.
    """
    if unknown := flags.keys() - set(NAMES):
        raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
    found = {name: _setting(name, flags.get(name), environ) for name in NAMES}
    database, listen, schema, data, http, url = (found[name] for name in NAMES)
    assert schema is not None
    assert data is not None
    assert http is not None
    if listen is not None and database is None:
        raise listen.wrong("but no database is named", "set POSTLEDGER_DATABASE or --database as well")
    return Config(
        database=_database(database) if database else None,
        listen=_database(listen) if listen else None,
        schema=_schema(schema),
        data=_folder(data),
        http=_host_and_port(http),
        url=_base_url(url) if url else None,
        proxies=_networks(environ.get("POSTLEDGER_PROXIES", "")),
        webhooks=Webhooks(**{name: _several(name, environ) for name in PROVIDERS}),
    )


def redact(url: str) -> str:
    """The URL for people's eyes: without passwords and keys, however badly it is formed.

    Hides too much rather than too little: a password may hold any of @ : / ? # although it should not.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme.lower() not in _WITHOUT_KEY:
        return f"{scheme}://***"
    if not separator:
        return "***" if "@" in url or "password" in url.lower() else url
    rest = re.sub(r"^([^:@/]*):.*@", r"\1:***@", rest, flags=re.DOTALL)
    return _PASSWORD.sub(r"\1***", f"{scheme}://{rest}")


# Schemes whose only secret is a password after the user; a provider's URL may carry its key anywhere.
_WITHOUT_KEY = frozenset({"postgres", "postgresql", "smtp", "smtps", "http", "https", "file", "null"})
_PASSWORD = re.compile(r"(?i)(password=)[^&#]+")


def _setting(name: str, flag: str | None, environ: Mapping[str, str]) -> _Setting | None:
    variable = f"POSTLEDGER_{name.upper()}"
    for source, value in (
        (f"--{name}", flag),
        (variable, environ.get(variable)),
        (variable, DEFAULTS.get(name)),
    ):
        if value:
            return _Setting(source, value)
    return None


def _several(provider: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(environ.get(f"POSTLEDGER_WEBHOOK_{provider.upper()}", "").split())


def _database(setting: _Setting) -> str:
    remedy = "write postgresql://user:password@host:5432/database"
    scheme, separator, rest = setting.value.partition("://")
    if not separator or scheme not in ("postgres", "postgresql"):
        raise setting.wrong("which is no PostgreSQL URL", remedy)
    hosts = re.split(r"[/?#]", rest.rpartition("@")[2], maxsplit=1)[0]
    for host in hosts.split(","):
        port = re.sub(r"^(\[[^]]*\]|[^:]*)", "", host)
        if port and not _is_port(port[1:]):
            raise setting.wrong("whose port is not a number up to 65535", remedy)
    return setting.value


def _schema(setting: _Setting) -> str:
    name = setting.value
    remedy = "choose a plain name such as postledger"
    if not name.isprintable():
        raise setting.wrong("which has characters that cannot be printed", remedy)
    if len(name.encode(errors="surrogateescape")) > 63:
        raise setting.wrong("which is longer than PostgreSQL's 63 bytes", remedy)
    if name.startswith("pg_") or name == "information_schema":
        raise setting.wrong("which PostgreSQL keeps for itself", remedy)
    return name


def _folder(setting: _Setting) -> Path:
    if "\0" in setting.value:
        raise setting.wrong("which is no path", "name a folder")
    try:
        return Path(setting.value).expanduser()
    except RuntimeError:
        raise setting.wrong("whose home folder is not known", "write the whole path") from None


def _host_and_port(setting: _Setting) -> tuple[str, int]:
    host, _, port = setting.value.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host != bare
    if not bare or not _is_port(port) or (":" in bare and not bracketed):
        raise setting.wrong("which is not HOST:PORT", "write for example 127.0.0.1:8025 or [::1]:8025")
    return bare, int(port)


def _base_url(setting: _Setting) -> str:
    remedy = "write for example https://mail.example.com"
    try:
        parts = urlsplit(setting.value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise setting.wrong("which is no URL", remedy) from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise setting.wrong("which is not an http or https address", remedy)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise setting.wrong("which has more than host and path", remedy)
    if not setting.value.isascii() or not re.fullmatch(r"[!-~]+", setting.value):
        raise setting.wrong("which has spaces or letters outside ASCII", remedy)
    return setting.value.rstrip("/")


def _networks(value: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(one) for one in value.replace(",", " ").split())
    except ValueError:
        raise _Setting("POSTLEDGER_PROXIES", value).wrong(
            "which are no networks", "write for example 10.0.0.0/8 172.17.0.1"
        ) from None


def read_address(source: str, value: str) -> tuple[str, int]:
    """Host and port. Raises ConfigurationError, which names `source`."""
    return _host_and_port(_Setting(source, value))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text[:6]) <= 65535
