"""The pages that readers of mails see: small, in their language, without scripts, cookies or outside hosts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template

from aiohttp import web

from ...ledger.readers import Reader
from ...messages.addresses import parse_mailbox
from .texts import TEXTS, Texts, language_of

_PAGE = Template(files("postledger").joinpath("http", "public", "page.html").read_text(encoding="utf-8"))

# Contrast at least 7 to 1 either way; targets at least 44 pixels high; nothing moves.
_STYLE = """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{margin:0;font:1.125rem/1.6 system-ui,sans-serif;background:#fff;color:#1a1a1a;overflow-wrap:anywhere}
main{max-width:36rem;margin:0 auto;padding:2rem 1.25rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 1rem}
fieldset{border:1px solid #767676;border-radius:.5rem;margin:1.5rem 0;padding:.5rem 1rem 1rem}
legend{padding:0 .5rem;font-weight:600}
label{display:flex;align-items:center;gap:.75rem;min-height:2.75rem}
input{width:1.4rem;height:1.4rem;flex:none;margin:0}
a{color:#0b4f9e}
button{font:inherit;font-weight:600;min-height:3rem;padding:.5rem 1.5rem;border:2px solid #0b4f9e;border-radius:.5rem;
background:#0b4f9e;color:#fff;cursor:pointer}
:focus-visible{outline:3px solid #c2410c;outline-offset:3px}
@media (prefers-color-scheme:dark){body{background:#141414;color:#f2f2f2}a{color:#a8cbff}
button{background:#a8cbff;border-color:#a8cbff;color:#10243f}:focus-visible{outline-color:#ffb68a}}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")

_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Vary": "Accept-Language",
    "X-Robots-Tag": "noindex",
}


def asking(request: web.Request, reader: Reader) -> web.Response:
    """What is left to decide, and buttons for it: nothing has happened yet."""
    texts = _texts(request)
    about = texts.about_unknown if reader.email is None else texts.about
    who = _filled(about, sender=_sender(reader.mail_from), address=masked(reader.email or ""))
    if reader.suppressed or (reader.list_name is not None and reader.off_list):
        return _page(request, texts.done, _paragraph(who) + _left(texts, reader) + _rest(texts, reader))
    if reader.list_name is None:
        return _page(request, texts.ask, _paragraph(who) + _form(_button(texts.button)))
    choice = (
        f"<fieldset><legend>{escape(texts.what)}</legend>"
        f"{_radio('list', _filled(texts.only_list, list=reader.list_name), checked=True)}"
        f"{_radio('all', escape(texts.everything))}</fieldset>"
    )
    return _page(request, texts.ask, _paragraph(who) + _form(choice + _button(texts.button)))


def left(request: web.Request, reader: Reader) -> web.Response:
    """It has happened."""
    texts = _texts(request)
    body = _left(texts, reader) + _rest(texts, reader) + _paragraph(escape(texts.mistake))
    return _page(request, texts.done, body)


def not_found(request: web.Request) -> web.Response:
    """For a link that is none of ours, or was damaged."""
    texts = _texts(request)
    return _page(request, texts.not_found, _paragraph(escape(texts.not_found_why)), status=404)


def trouble(request: web.Request, again_in: str) -> web.Response:
    """For a trouble of ours that passes: nothing has happened."""
    texts = _texts(request)
    return _page(
        request, texts.trouble, _paragraph(escape(texts.trouble_why)), status=503, headers={"Retry-After": again_in}
    )


def too_many(request: web.Request, again_in: str) -> web.Response:
    """For who tries link after link."""
    texts = _texts(request)
    return _page(
        request, texts.too_many, _paragraph(escape(texts.too_many_why)), status=429, headers={"Retry-After": again_in}
    )


def plain(title: str, body: str) -> web.Response:
    """A page in English of the same looks; `body` is HTML."""
    return _response("en", title, body, 200, {})


def masked(address: str) -> str:
    """Enough for who knows the address; a forwarded mail, or a spider, does not tell it to others."""
    local, _, domain = address.rpartition("@")
    host, _, top = domain.rpartition(".")
    return f"{local[:1]}•••@{host[:1]}•••.{top}"


def _texts(request: web.Request) -> Texts:
    return TEXTS[_language(request)]


def _language(request: web.Request) -> str:
    return language_of(request.headers.get("Accept-Language", ""))


def _sender(mail_from: str) -> str:
    mailbox = parse_mailbox(mail_from)
    return mailbox.name or mailbox.address


def _left(texts: Texts, reader: Reader) -> str:
    if reader.suppressed or reader.list_name is None:
        return f'<p role="status">{escape(texts.left_everything)}</p>'
    return f'<p role="status">{_filled(texts.left_list, list=reader.list_name)}</p>'


def _rest(texts: Texts, reader: Reader) -> str:
    """Who has left a list may still want no mail at all."""
    if reader.suppressed or reader.list_name is None:
        return ""
    return _form('<input type="hidden" name="scope" value="all">' + _button(texts.button_everything))


def _form(inside: str) -> str:
    # Without an action it goes to the page's own address, whatever stands before it on a proxy.
    return f'<form method="post">{inside}</form>'


def _button(text: str) -> str:
    return f'<button type="submit" name="from" value="page">{escape(text)}</button>'


def _radio(value: str, label: str, *, checked: bool = False) -> str:
    mark = " checked" if checked else ""
    return f'<label><input type="radio" name="scope" value="{value}"{mark}><span>{label}</span></label>'


def _filled(text: str, **values: str) -> str:
    return escape(text).format(**{name: f"<strong>{escape(value)}</strong>" for name, value in values.items()})


def _paragraph(html: str) -> str:
    return f"<p>{html}</p>"


def _page(
    request: web.Request, title: str, body: str, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    return _response(_language(request), title, body, status, headers or {})


def _response(language: str, title: str, body: str, status: int, headers: Mapping[str, str]) -> web.Response:
    return web.Response(
        status=status,
        text=_PAGE.substitute(lang=language, title=escape(title), style=_STYLE, body=body),
        content_type="text/html",
        headers={**_HEADERS, "Content-Language": language, **headers},
    )
