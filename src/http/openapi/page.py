"""The description as one page to read: plain HTML, its style in it, no script and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

Node = Mapping[str, Any]

METHODS = ("get", "post", "put", "patch", "delete")


def page(document: Node) -> tuple[bytes, str]:
    """The page, and the Content-Security-Policy under which it works."""
    style = files("postledger.http.openapi").joinpath("page.css").read_text(encoding="utf-8")
    body = "".join(_body(document))
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Postledger API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>{body}</body></html>"
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.encode(), policy


def _body(document: Node) -> Iterator[str]:
    info = document["info"]
    yield f"<header><h1>{escape(info['title'])} API</h1><p>Version {escape(info['version'])}. "
    yield f'For programs: <a href="/openapi.json">/openapi.json</a>.</p><p>{_words(info["description"])}</p></header>'
    tags = [tag["name"] for tag in document["tags"]]
    links = "".join(f'<li><a href="#{escape(tag)}">{escape(tag)}</a></li>' for tag in (*tags, "schemas"))
    yield f'<nav aria-label="Resources"><ul>{links}</ul></nav><main>'
    for tag in tags:
        yield f'<section aria-labelledby="{escape(tag)}"><h2 id="{escape(tag)}">{escape(tag)}</h2>'
        for path, methods in document["paths"].items():
            for method in METHODS:
                if method in methods and tag in methods[method]["tags"]:
                    yield from _operation(method, path, methods[method])
        yield "</section>"
    yield '<section aria-labelledby="schemas"><h2 id="schemas">schemas</h2>'
    for name, schema in document["components"]["schemas"].items():
        yield from _component(name, schema)
    yield "</section></main>"


def _operation(method: str, path: str, operation: Node) -> Iterator[str]:
    name = escape(operation["operationId"])
    yield f'<details id="{name}"><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
    yield f'<span class="what">{escape(operation["summary"])}</span> {_scopes(operation)}</summary><div>'
    if "description" in operation:
        yield f"<p>{_words(operation['description'])}</p>"
    if parameters := operation.get("parameters"):
        yield _table("Parameters", ("name", "in", "type", ""), (_parameter(one) for one in parameters))
    if body := operation.get("requestBody"):
        yield "<h3>Body</h3>"
        for kind, content in body["content"].items():
            yield f"<p><code>{escape(kind)}</code> {_type(content['schema'])}</p>"
            if "example" in content:
                yield f"<pre>{escape(json.dumps(content['example'], indent=2, ensure_ascii=False))}</pre>"
    yield _table("Answers", ("status", "type", ""), (_answer(*one) for one in operation["responses"].items()))
    yield "</div></details>"


def _scopes(operation: Node) -> str:
    scopes = [scope for one in operation["security"] for scope in one["key"]]
    words = " or ".join(scopes) if scopes else "open to everybody"
    return f'<span class="scope">{escape(words)}</span>'


def _parameter(one: Node) -> tuple[str, ...]:
    required = "" if one["required"] else " (optional)"
    name = f"<code>{escape(one['name'])}</code>{required}"
    return name, escape(one["in"]), _type(one["schema"]), _words(one.get("description", ""))


def _answer(status: str, answer: Node) -> tuple[str, ...]:
    kinds = [f"<code>{escape(kind)}</code> {_type(one['schema'])}" for kind, one in answer.get("content", {}).items()]
    return f"<code>{status}</code>", "<br>".join(kinds), _words(answer["description"])


def _component(name: str, schema: Node) -> Iterator[str]:
    yield f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code> '
    yield f'<span class="what">{_words(schema.get("description", ""))}</span></summary><div>'
    required = schema.get("required", ())
    rows = (
        (
            f"<code>{escape(field)}</code>{'' if field in required else ' (optional)'}",
            _type(one),
            _words(one.get("description", "")),
        )
        for field, one in schema.get("properties", {}).items()
    )
    yield _table("Fields", ("name", "type", ""), rows)
    yield "</div></details>"


def _type(schema: Node) -> str:
    """A type in a few words, with a link where it has a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    names = " or ".join(kind) if isinstance(kind, list) else kind
    return escape(f"{names}, {schema['format']}" if "format" in schema else names) + _bounds(schema)


def _bounds(schema: Node) -> str:
    bounds = [
        (schema.get("minLength"), schema.get("maxLength"), "characters"),
        (schema.get("minimum"), schema.get("maximum"), ""),
    ]
    found = [
        f"{least:,} to {most:,} {unit}".strip()
        for least, most, unit in bounds
        if least is not None and most is not None
    ]
    default = [f"default {json.dumps(schema['default'])}"] if "default" in schema else []
    return f" ({escape('; '.join(found + default))})" if found or default else ""


def _table(title: str, heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return (
        f'<h3>{title}</h3><div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _words(text: str) -> str:
    """Text with its `code` marked."""
    parts = escape(text).split("`")
    return "".join(part if number % 2 == 0 else f"<code>{part}</code>" for number, part in enumerate(parts))
