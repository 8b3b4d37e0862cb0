"""The fast way through a letter's HTML gives what the slow way gives."""

import html
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.messages.markup import Markup
from postledger.messages.plaintext import to_text
from postledger.messages.templates import SafeHtml, Template, TemplateError

VALUES: dict[str, Any] = {
    "name": "Jö <b> & Co",
    "link": "https://example.com/?a=1&copy=2&lt=3",
    "color": "red",
    "plan": "pro",
    "empty": "",
    "data": {},
    "items": ["one", "two"],
    "unsubscribe_url": SafeHtml("https://example.com/u/T"),
}
STYLE = "<style>p{color:red} a:hover{color:blue} @media print{p{color:black}}</style>"

FAST = [
    "<p>Dear {{ name }}</p>",
    STYLE + "<p>Dear {{ name|upper }}, <a href='{{ link }}'>look</a> or <a href=\"{{ link }}\">{{ link }}</a></p>",
    f"<html><head>{STYLE}<title>{{{{ name }}}}</title></head><body><p>{{{{ name }}}}</p></body></html>",
    STYLE + "<table><tr><td>{{ name }}</td><td><p>{{ plan }}</p></td></tr></table>",
    STYLE + "<p>a{% if plan == 'pro' %}<b>b</b>{% else %}c{% endif %}d</p>{# never seen #}",
    STYLE + "<div>{% for item in items %}<p>{{ item }} {{ loop.index }}</p>{% endfor %}</div>",
    STYLE + "<p>{% if empty %}x{% elif plan %}y{% endif %}</p><img alt='{{ name }}' src=\"{{ link }}\">",
    STYLE + "<p>&#123;&#123; quiet }} &#123;% quiet %} {&#35; { { {{ name }}</p>",
    STYLE + "<p>{% set who = name %}{{ who }}</p>",
    STYLE + '<a href="{% if plan %}{{ link }}{% else %}https://example.com{% endif %}">x</a>',
    STYLE + '<p>{{ data["First name"]|default("you & me") }}</p>',
    "<ul><li>{{ name }}<li>{{ plan }}</ul><hr><h1>{{ name }}</h1>",
]
SLOW = [
    (STYLE + "<p class='{{ plan }}'>x</p>", True, True),
    (STYLE + "<p style='display:{{ plan }}'>x</p>", True, True),
    ("<style>p{color:{{ color }}}</style><p>x</p>", True, True),
    ("<style>p[title]{color:red}</style><p>{{ name }}</p>", True, False),
    ("<style>p:empty{color:red}</style><p>{{ empty }}</p>", True, False),
    ("<style>p:first-child{color:red}</style><div>{% if empty %}<p>a</p>{% endif %}<p>b</p></div>", True, False),
    ("<style>b+p{color:red}</style><div>{% if empty %}<b>a</b>{% endif %}<p>b</p></div>", True, False),
    (STYLE + "<table>{% for item in items %}<tr><td><p>{{ item }}</p></td></tr>{% endfor %}</table>", True, True),
    (STYLE + "<ol>{% for item in items %}<li>{{ item }}</li>{% endfor %}</ol>", True, True),
    (STYLE + "{% if plan %}<div>{% endif %}<p>x</p>{% if plan %}</div>{% endif %}", True, True),
    (STYLE + "<p>{{ name|safe }}</p>", True, True),
    (STYLE + "<p>{{ name|e }}</p>", True, True),
    (STYLE + "<p>{{- name -}}</p>", True, True),
    (STYLE + "<p>{% raw %}{{ x }}{% endraw %}</p>", True, True),
    (STYLE + "<p {% if plan %}align=left{% endif %}>x</p>", True, True),
    (STYLE + "<a href={{ link }}>x</a>", True, True),
    (STYLE + "<{{ plan }}>x</{{ plan }}>", True, True),
    (STYLE + "<p>&{{ plan }};</p>", True, True),
    (STYLE + "<p>&#x{{ plan }};</p>", True, True),
    (STYLE + "<p>\ue0001\ue001 {{ name }}</p>", True, True),
    (STYLE + "{% set block %}<p>{{ name }}</p>{% endset %}<div>{{ block }}</div>", True, True),
    ("<html><head>" + STYLE + "</head>{{ name }}<body><p>x</p></body></html>", True, True),
    (STYLE + "<p>{% if plan %}<div>a</div>{% endif %}</p>", True, False),
    (STYLE + "<p style='display:none'>{% if plan %}a{% endif %}</p>{{ name }}", False, True),
    (STYLE + "<!-- {{ name }} --><p>{{ name }}</p>", False, False),
    (STYLE + "<!-- {% if plan %} --><p>{{ name }}</p><!-- {% endif %} -->", True, True),
    ("<p>{{ name }}</p>" + "x" * 300_001 + STYLE, True, True),
]


def slowly(source: str, values: dict[str, Any]) -> tuple[str, str]:
    """Rendered first, then converted: whatever this gives is right."""
    rendered = Template.compile(source, "html").render(values)
    each = Markup(Template.compile("", "html"), Template.compile("{{ h|safe }}", "html"), True, None, True, False)
    return (each.render({"h": rendered})[0] if "<style" in source else rendered), to_text(rendered)


def same_but_for_space(text: str | None) -> list[str]:
    return (text or "").split()


@pytest.mark.parametrize("source", FAST)
def test_the_fast_way_is_taken_and_right(source: str) -> None:
    markup = Markup.prepare(source, with_text=True)
    assert not markup._inlines_each
    assert not markup._converts_each
    for values in (VALUES, {**VALUES, "plan": "", "empty": "z", "items": []}):
        fast_html, text = markup.render(values)
        slow_html, slow_text = slowly(source, values)
        assert equal_html(fast_html, slow_html)
        assert same_but_for_space(text) == same_but_for_space(slow_text)


@pytest.mark.parametrize(("source", "inlines", "converts"), SLOW)
def test_the_slow_way_is_taken_where_it_must_be(source: str, inlines: bool, converts: bool) -> None:
    markup = Markup.prepare(source, with_text=True)
    assert (markup._inlines_each, markup._converts_each) == (inlines, converts)
    given_html, text = markup.render(VALUES)
    slow_html, slow_text = slowly(source, VALUES)
    assert equal_html(given_html, slow_html)
    assert same_but_for_space(text) == same_but_for_space(slow_text)


def equal_html(one: str, other: str) -> bool:
    """Equal to a reader; how `<` or a quote is written within an attribute may differ."""
    return tokens_of(one) == tokens_of(other)


def tokens_of(source: str) -> list[object]:
    reader = Reader()
    reader.feed(source)
    reader.close()
    return reader.tokens


class Reader(HTMLParser):
    """Lists what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[object] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tokens.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.tokens.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.tokens += [data]

    def handle_comment(self, data: str) -> None:
        self.tokens.append(f"!{html.unescape(data)}")


PIECES = st.sampled_from(
    [
        *("<p>", "</p>", "<div>", "</div>", "<b>", "</b>", "<table>", "<tr>", "<td>", "</td>", "</table>", "<br>"),
        *("text ", "&amp; ", "{{ name }} ", "{{ plan }} ", "<a href='{{ link }}'>", "</a>", "<ul>", "<li>", "</ul>"),
        *("{% if plan %}", "{% else %}", "{% endif %}", "{% if empty %}", "<!-- {{ name }} -->", "<body>", "</body>"),
        *("{% for item in items %}", "{{ item }} ", "{% endfor %}", "<p title='{{ name }}'>", "<h1>", "</h1>"),
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=14), st.booleans())
def test_either_way_gives_the_same(pieces: list[str], styled: bool) -> None:
    source = (STYLE if styled else "") + "".join(pieces)
    try:
        markup = Markup.prepare(source, with_text=True)
        fast_html, text = markup.render({**VALUES, "item": "i"})
    except TemplateError:
        return
    slow_html, slow_text = slowly(source, {**VALUES, "item": "i"})
    assert equal_html(fast_html, slow_html)
    assert same_but_for_space(text) == same_but_for_space(slow_text)


def test_styles_move_in_and_stay() -> None:
    styled, _ = Markup.prepare(STYLE + "<p>x</p>", with_text=False).render({})
    assert '<p style="color: red;">x</p>' in styled
    assert "a:hover{color:blue} @media print{p{color:black}}" in styled


def test_html_without_styles_is_left_as_it_is() -> None:
    source = "<P>unclosed <b>\n&copy; <a href='?a=1&b=2'>x</a>"
    assert Markup.prepare(source, with_text=False).render({}) == (source, None)


def test_no_style_sheet_is_fetched_or_read(tmp_path: Any) -> None:
    sheet = tmp_path / "sheet.css"
    sheet.write_text("p{color:green}")
    for target in (sheet.as_uri(), str(sheet), "https://127.0.0.1:1/x.css"):
        source = f'<link rel="stylesheet" href="{target}">{STYLE}<p>x</p>'
        styled, _ = Markup.prepare(source, with_text=False).render({})
        assert "green" not in styled
        assert f'<link rel="stylesheet" href="{target}">' in styled


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<p>One<p>Two<br>three", "One\n\nTwo\nthree"),
        ('<a href="//e/?a=1&b=2&copy=3&amp;lt=4&#38;f[0]=a:2">x</a>', "x <//e/?a=1&b=2&copy=3&lt=4&f[0]=a:2>"),
        ('<a href="https://example.com/">https://example.com/</a>', "https://example.com/"),
        ('<a href="mailto:ann@e.com">write</a> <a href="tel:+1">ring</a>', "write <ann@e.com> ring <tel:+1>"),
        ('<a href="#top">up</a> <a name="x">here</a> <a>none</a>', "up here none"),
        ('<a href="//a/1">a</a><a href="//a/2">b</a> <a href="//a/3">c</a>', "a <//a/1>b <//a/2> c <//a/3>"),
        ('<a href="https://e/"><img src="x" alt="Our shop"></a><img src="pixel">', "[Our shop] <https://e/>"),
        ("AT&amp;T &amp;lt;b&amp;gt; &lt;i&gt; R&D &nbsp;x", "AT&T &lt;b&gt; <i> R&D x"),
        ('<div style="display:none">hidden</div>seen<script>s</script><style>t</style>', "seen"),
        ("<head><title>t</title></head><body>b</body>", "b"),
        ("<!-- c -->a<!-- d -->b", "ab"),
        ("<p>a</p>\n\n\n<p></p><p></p><p>b</p>", "a\n\nb"),
        ("<ul><li>a<li>b</ul>", "  * a\n  * b"),
        ("<pre>a  b\n  c</pre>", "a  b\n  c"),
        ("<b>" * 400 + "deep" + "</b>" * 400, "deep"),
        ("<div>" * 300 + "deep", "deep"),
        ('<meta charset="latin1"><p>é漢🎉', "é漢🎉"),
        ('<?xml version="1.0" encoding="utf-16"?><html><body>é</body></html>', "é"),
        ("", ""),
        (" \n", ""),
        ("<img src=x>", ""),
        ("<!-- only -->", ""),
    ],
)  # fmt: skip
def test_text_of_html(source: str, text: str) -> None:
    assert to_text(source) == text


def test_endless_nesting_is_an_error_before_the_first_mail() -> None:
    with pytest.raises(TemplateError, match="nested too deeply"):
        Markup.prepare("<div>" * 5000 + "{{ name|safe }}", with_text=True)
    Markup.prepare("<div>" * 5000 + "{{ name|safe }}", with_text=False)


@settings(deadline=None, max_examples=150)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_html_has_a_text(source: str) -> None:
    text = to_text(source)
    assert text == text.strip("\n")
    assert "\n\n\n" not in text
