"""What templates give, and what they are refused."""

import contextlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.errors import DataError
from postledger.messages.templates import SafeHtml, Template, TemplateError

DATA = {
    "First name": "Jö",
    "city": "Köln",
    "items": "own",
    "missing": None,
    "list": ["a", "b"],
    "nested": {"deep": {"er": "x"}},
}
VALUES: Mapping[str, Any] = {
    **DATA,
    "data": DATA,
    "email": "ann@example.com",
    "name": "Ann <b>& Co</b>",
    "key": "k-1",
    "count": "3",
    "unsubscribe_url": SafeHtml("https://example.com/u/x?a=1&b=2"),
    "link": "https://example.com/?a=1&b=2",
}


def render(source: str, kind: str = "text", **values: Any) -> str:
    return Template.compile(source, kind).render({**VALUES, **values})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Dear {{ name }}", "Dear Ann <b>& Co</b>"),
        ('{{ data["First name"] }} in {{ data.city }}', "Jö in Köln"),
        ("{{ data['First name'] }} {{ data.items }}", "Jö own"),
        ("{{ nested.deep.er }} {{ data.nested.deep.er }}", "x x"),
        ("{% for x in list %}{{ loop.index + 1 }}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "2a, 3b"),
        ("{% for name, value in nested|items %}{{ name }}={{ value.er }}{% endfor %}", "deep=x"),
        ("{% for x in list %}{{ loop.cycle('odd', 'even') }} {% endfor %}", "odd even "),
        ("{{ nowhere|default('friend') }} {{ data['no such']|d('x') }}", "friend x"),
        ("{{ missing|default('null is missing') }}", "null is missing"),
        ("{% if nowhere is defined %}yes{% else %}no{% endif %}", "no"),
        ("{% if city in ['Köln', 'Bonn'] %}Rhein{% endif %}", "Rhein"),
        ("{% set greeting = 'Hi ' ~ name[:3] %}{{ greeting }}", "Hi Ann"),
        ("{{ name[4:] }}", "<b>& Co</b>"),
        ("{{ count|int + 1 }} {{ 2 + count|int }} {{ list|length + 1 }}", "4 5 3"),
        ("{{ '%.2f'|format(count|float / 2) }}", "1.50"),
        ("{{ city|upper }} {{ city|replace('K', 'C') }} {{ list|join(', ') }}", "KÖLN Cöln a, b"),
        ("a{# comment #}b{% raw %}{{ raw }}{% endraw %}", "ab{{ raw }}"),
        ("{{ unsubscribe_url }}", "https://example.com/u/x?a=1&b=2"),
        ("a\r\n\n b \n", "a\r\n\n b \n"),
        ("100% { } {x} }} %}", "100% { } {x} }} %}"),
        ("{{ Größe }}", "M"),
    ],
)
def test_what_letters_need(source: str, text: str) -> None:
    assert render(source, Größe="M") == text


def test_html_escapes_values_and_leaves_addresses_readable() -> None:
    assert render("<p>{{ name }}</p>", "html") == "<p>Ann &lt;b&gt;&amp; Co&lt;/b&gt;</p>"
    assert render('<a href="{{ link }}">', "html") == '<a href="https://example.com/?a=1&amp;b=2">'
    assert render('<a href="{{ unsubscribe_url }}">', "html") == '<a href="https://example.com/u/x?a=1&amp;b=2">'
    assert render("{{ q }}", "html", q="\"'</script>") == "&quot;&#x27;&lt;/script&gt;"
    assert render("{{ name|safe }}", "html") == "Ann <b>& Co</b>"
    assert render("{{ name }}", "subject") == "Ann <b>& Co</b>"


@settings(deadline=None, max_examples=60)
@given(st.text())
def test_html_holds_no_markup_of_a_value(value: str) -> None:
    html = render('<i title="{{ v }}">{{ v }}</i>', "html", v=value)
    inner = html.removeprefix('<i title="').removesuffix("</i>")
    assert not set(inner.replace('">', "", 1)) & set("<>\"'")


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("a\nb {{ name", 2, "}}"),
        ("a\n{{ 'name }}", 2, "not closed"),
        ("{% if name %}", 1, "expected end of block"),
        ("{% endif %}", 1, "endif"),
        ("{% nonsense %}", 1, "nonsense"),
        ("\n\n{{ name|nonsense }}", 3, "nonsense"),
        ("{{ name is nonsense }}", 1, "nonsense"),
        ("{{ }}", 1, "unexpected"),
        ("{{ name $ }}", 1, "'$'"),
        ("{# never closed", 1, "comment"),
        ("@media print{#top{color:red}}", 1, "{ #"),
        ("\n{% raw %}", 2, "endraw"),
        ("{{ name name }}", 1, "expected"),
    ],
)
def test_errors_name_line_and_what(source: str, line: int, what: str) -> None:
    with pytest.raises(TemplateError) as raised:
        Template.compile(source, "html")
    assert raised.value.line == line
    assert what in raised.value.what
    assert f"line {line}" in str(raised.value)
    assert isinstance(raised.value, DataError)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("{{ nowhere }}", "`nowhere`"),
        ("{{ data['no such'] }}", "`data['no such']`"),
        ("{{ missing }}", "`missing`"),
        ("{% if nowhere %}{% endif %}", "`nowhere`"),
        ("{% for x in nowhere %}{% endfor %}", "`nowhere`"),
        ("{{ nested.nowhere }}", "nested.nowhere"),
        ("{{ name|int }}", "`int`"),
        ("{{ 1 / (count|int - 3) }}", "cannot be computed"),
        ("{{ thing }}", "type object"),
    ],
)
def test_what_a_recipient_lacks_is_an_error_without_their_data(source: str, what: str) -> None:
    with pytest.raises(TemplateError) as raised:
        render(source, thing=object())
    assert what in str(raised.value)
    assert "Ann" not in str(raised.value)


def test_variables_and_what_is_required() -> None:
    template = Template.compile(
        "{{ name }}{{ data['First name'] }}{{ data.city }}{{ a.b }}{{ c[1:] }}{{ d|default('x') }}"
        "{% if e is defined %}{{ e }}{% endif %}{% if f is not undefined %}{% endif %}"
        "{{ data.g|default('') }}{{ data['h']|d('') }}{% for i in j %}{{ i }}{{ loop.index }}{% endfor %}"
        "{% set k = l %}{{ k }}{% set m|replace(n, 'x') %}{% endset %}{{ range(3)|join }}"
        "{# {{ o }} #}{% raw %}{{ p }}{% endraw %}{{ 'q' if r in ['s'] else t }}{{ u|join(sep) }}{{ data[w] }}",
        "text",
    )
    names = {"name", "data", *"acdefjlnrtuw", "sep"}
    assert template.variables() == names
    assert template.required == (names - {"data", "d", "e", "f"}) | {"First name", "city"}


REFUSED = [
    # Nothing of Python, of the machine, of the clock or of chance.
    "{{ name.upper() }}",
    "{{ data.clear() }}",
    "{{ data.keys() }}",
    "{{ data.items().mapping }}",
    "{{ list.append(1) }}",
    "{{ name.__class__ }}",
    "{{ name['__class__'] }}",
    "{{ data.__class__.__mro__ }}",
    "{{ data._data }}",
    "{{ data|attr('__class__') }}",
    "{{ env('HOME') }}",
    "{{ self }}",
    "{{ debug() }}",
    "{{ now() }}",
    "{{ randrange(9) }}",
    "{{ list|random }}",
    "{{ cycler('a') }}",
    "{{ namespace(a=1) }}",
    "{{ dict(a=1) }}",
    "{{ loop.cycle }}{{ other.cycle(1) }}",
    "{{ name.range(3) }}",
    # No file.
    "{% include '/etc/passwd' %}",
    "{% include 'x' ignore missing %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    # No code of its own.
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% call name() %}{% endcall %}",
    "{% block b %}{% endblock %}",
    "{% with a = 1 %}{% endwith %}",
    "{% do name.upper() %}",
    "{% filter upper %}{% endfilter %}",
    "{% autoescape false %}{{ name }}{% endautoescape %}",
    # Nothing that grows faster than what it is charged for.
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for i in range(1000000000) %}x{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 1000000000 }}",
    "{{ list * 1000000000 }}",
    "{{ list + list }}",
    "{{ 0|default(list, true) + list }}",
    "{{ [list, list] }}",
    "{{ (list, list) }}",
    "{{ {'a': list} }}",
    "{{ name is in [list, list] }}",
    "{% set a = list, list %}",
    "{% set a, b = list %}",
    "{% set l0 = ['x'] %}"
    + "".join(f"{{% set l{n + 1} = [{', '.join([f'l{n}'] * 10)}] %}}" for n in range(9))
    + "{{ l9 }}",
    "{% set l = 'x y'|split|list %}" + "{% set l = l + l %}" * 35 + "{{ l|join }}",
    "{{ list|tojson(indent=100000000000) }}",
    "{{ name|wordwrap(width=1, wrapstring=name) }}",
    "{{ list|zip(list) }}",
    "{{ list|map('upper')|list }}",
    "{{ list|join(attribute='a') }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%.1000000000f'|format(1.5) }}",
    "{{ name|indent(1000000000) }}",
    "{{ 'a'" + "|replace('a', 'aaaaaaaaaa')" * 9 + " }}",
    "{% set a = 'xxxxxxxxxx' %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}",
    "{% set a %}{{ big }}{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 20 + "{{ a }}",
    "{{ big|replace('x', big) }}",
    "{{ big|join(big) }}",
    "{{ big|list|join(big) }}",
    "{% for x in big %}{{ big }}{% endfor %}",
    "{{ big }}" * 20,
    "{{ " + "(" * 140 + "1" + ")" * 140 + " }}",
    "{{ " + "1 + " * 200 + "1 }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{{ name }}" * 10_001,
    "{{ name }} " * 10_001,
    "x" * 10_000_001,
    "é" * 5_000_001,
]


@pytest.mark.parametrize("source", REFUSED, ids=lambda source: source[:40])
def test_attacks_end_in_an_error(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source, big="x" * 1_000_000)


def test_attacks_cost_neither_time_nor_memory() -> None:
    """In a process of its own: where MiniJinja gets no memory it ends the process it is in."""
    script = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from postledger.messages.templates import Template, TemplateError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
values = {{"name": "Ann", "list": ["a"], "data": {{}}, "big": "x" * 1_000_000}}
for source in {[source for source in REFUSED if len(source) < 10_000]!r}:
    try:
        Template.compile(source, "html").render(values)
    except TemplateError:
        continue
    sys.exit("passed: " + source[:60])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 250_000, f"{done.stdout} kB more memory"


def test_output_of_ten_megabytes_is_an_error() -> None:
    assert len(render("{{ a }}", a="x" * 9_999_999)) == 9_999_999
    with pytest.raises(TemplateError, match="10,000,000"):
        render("{{ a }}", a="x" * 10_000_001)
    with pytest.raises(TemplateError, match="10,000,000"):
        render("{{ a }}", a="é" * 5_000_001)


def test_a_long_subject_template_is_an_error() -> None:
    with pytest.raises(TemplateError, match="10,000,000 characters"):
        Template.compile("x" * 10_000_000, "subject")


def test_values_are_not_changed_and_not_shared() -> None:
    data = {"list": ["a"], "nested": {"x": "y"}}
    template = Template.compile("{{ data.list|join }}{% set list = 1 %}{% set data = 2 %}{{ list }}", "text")
    assert template.render({"data": data, "list": data["list"]}) == "a1"
    assert template.render({"data": data}) == "a1"
    assert data == {"list": ["a"], "nested": {"x": "y"}}


def test_a_source_with_surrogates_and_nul_renders_replacements() -> None:
    assert render("a\ud800b\x00c{{ v }}", v="\udc00") == "a\ufffdb\ufffdc\ufffd\ufffd\ufffd"


def test_headers_that_are_words_of_python_or_of_templates() -> None:
    values = {"self": "s", "class": "c", "template_name": "t", "context": "x", "Range": "r"}
    assert render("{{ self }}{{ class }}{{ template_name }}{{ context }}{{ Range }}", **values) == "sctxr"


@settings(deadline=None, max_examples=200)
@given(st.text("{}%#-+ abif\"'[]().|~,=*\n0", max_size=30))
def test_any_source_compiles_or_is_refused(source: str) -> None:
    try:
        template = Template.compile(source, "html")
    except TemplateError:
        return
    assert "".join(part.source for part in template.parts) == source
    with contextlib.suppress(TemplateError):
        template.render({"a": "x", "b": ["y"]})


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(exclude_characters="{", exclude_categories=["Cs"])))
def test_a_source_without_tags_is_itself(source: str) -> None:
    cleaned = source.replace("\x00", "\ufffd")
    assert Template.compile(source, "text").render({}) == cleaned
