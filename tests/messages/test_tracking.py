"""Links that tell: found as a browser finds them, led through us and back to exactly where they led."""

import html
import re
from datetime import UTC, datetime
from email import message_from_bytes, policy
from urllib.parse import urlsplit

import lxml.html
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.messages.addresses import parse_mailbox
from postledger.messages.letter import Campaign, Letter, Recipient
from postledger.messages.links import find_links
from postledger.messages.mime import prepare
from postledger.messages.tracking import TrackedLinks, link_digest, read_click, read_open, target_of
from postledger.messages.unsubscribe import InvalidToken, UnsubscribeLinks, make_token, read_token

SECRET = bytes(range(32))
BASE = "https://mail.example.com"
BOTH = TrackedLinks(BASE, SECRET, opens=True, clicks=True)
CLICKS = TrackedLinks(BASE, SECRET, clicks=True)

EXACT = [
    "https://example.com",
    "http://example.com/",
    "HTTPS://Example.com/Path",
    "https://example.com/a%20b?x=%7Ey&y=%e4",
    "https://example.com/?f[0]=a:2&f[1]=b",
    "https://example.com/?q=a+b&r=%2B;s=1#top",
    "https://user@example.com:8443/~x/(y)*'z'!,$",
    "https://example.com/?next=https://other.example/?a=b",
    "https://example.com/|^`{}\\",
    "https://[2001:db8::1]/",
]


def target(url: str) -> str:
    """Where a link of ours leads, as the service reads it."""
    assert url.startswith(f"{BASE}/c/"), url
    token, encoded = urlsplit(url).path.split("/")[-2:]
    campaign, delivery, found = read_click(SECRET, token, encoded)
    assert (campaign, delivery) == (7, 300)
    return found


def hrefs(source: str) -> list[str]:
    """By another parser than ours."""
    return [element.get("href") for element in lxml.html.fromstring(source).iter("a", "area") if element.get("href")]


@pytest.mark.parametrize("address", EXACT)
@pytest.mark.parametrize("quote", ['"', "'", ""])
def test_an_address_is_the_same_to_the_byte(address: str, quote: str):
    if quote == "'":
        address = address.replace("'", "")
    source = f"<p>x<a class=y href={quote}{html.escape(address, quote=False)}{quote} id=z>link</a>"
    tracked = CLICKS.apply(source, 7, 300)
    assert target(hrefs(tracked)[0]) == address
    assert tracked.startswith("<p>x<a class=y href=")
    assert tracked.endswith(f"{quote} id=z>link</a>")


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        (" https://example.com/x \n", "https://example.com/x"),
        ("https://example.com/a b", "https://example.com/a%20b"),
        ("https://example.com/ü?ß=1", "https://example.com/%C3%BC?%C3%9F=1"),
    ],
)
def test_what_no_header_can_hold_is_written_as_browsers_write_it(written: str, sent: str):
    assert target_of(written) == sent
    assert target_of(sent) == sent


LEFT_ALONE = [
    *("mailto:a@example.com", "tel:+491", "sms:+491", "#top", "", "/relative", "cid:picture", "data:text/html,x"),
    *("javascript:alert(1)", "ftp://example.com/", "//example.com/", "https:", "https://", "https:///x", "httpsx://a"),
    *("https://example.com/a\nb", "https://exämple.com/", "https://example.com/\ud800", "https://a b/", "https://["),
    "https://example.com/" + "x" * 4000,
    f"{BASE}/u/{make_token(SECRET, 7, 300)}",
]


@pytest.mark.parametrize("address", LEFT_ALONE)
def test_other_links_stay_as_they_are(address: str):
    source = f'<a href="{html.escape(address)}">x</a>'
    assert CLICKS.apply(source, 7, 300) == source


@pytest.mark.parametrize(
    "source",
    [
        '<!-- <a href="https://example.com">x</a> -->',
        '<!--[if mso]><a href="https://example.com">x</a><![endif]-->',
        '<style>a[href="https://example.com"]{color:red}</style>',
        "<script>x = \"<a href='https://example.com'>\"</script>",
        "https://example.com in words",
        '<link href="https://example.com/style.css"><img src="https://example.com/p.png"><base href="https://x.example">',
        '<abbr href="https://example.com">x</abbr>',
        '<a data-href="https://example.com">x</a>',
        "<a href>x</a>",
    ],
)
def test_what_is_no_link_stays_as_it_is(source: str):
    assert CLICKS.apply(source, 7, 300) == source


def test_several_on_one_line_with_either_quote():
    source = (
        "<a href=\"https://a.example/'\">1</a><a href='https://b.example/\"'>2</a> <A\nHREF = https://c.example/>3</A>"
    )
    found = [target(url) for url in hrefs(CLICKS.apply(source, 7, 300))]
    assert found == ["https://a.example/'", 'https://b.example/"', "https://c.example/"]


def test_the_first_of_two_addresses_counts():
    tracked = CLICKS.apply('<a href="https://a.example" href="https://b.example">x</a>', 7, 300)
    assert target(hrefs(tracked)[0]) == "https://a.example"
    assert 'href="https://b.example"' in tracked


names = st.sampled_from(["href", "HREF", "class", "title", "data-href", "hre", "onclick"])
words = st.text(st.sampled_from("ab/:?&;=<> '\"\n"), max_size=12)
values = st.one_of(
    st.sampled_from(EXACT[:6]).map(lambda url: f'"{html.escape(url)}"'),
    words.map(lambda word: "'" + word.replace("'", "") + "'"),
    words.map(lambda word: '"' + word.replace('"', "") + '"'),
    st.sampled_from(["https://u.example/x", "b", "1/2"]),
)
attributes = st.lists(st.one_of(names, st.tuples(names, values).map("=".join)), max_size=4).map(" ".join)
tags = st.tuples(st.sampled_from(["a", "A", "area", "p", "b", "img"]), attributes).map(lambda t: f"<{t[0]} {t[1]}>")
pieces = st.one_of(
    tags, st.sampled_from(["</a>", "</p>", "text", "&amp;", "\n", "<!-- <a href='https://c.example'> -->"])
)


@settings(deadline=None, max_examples=150)
@given(st.lists(pieces, max_size=12).map("".join))
def test_as_another_parser_sees_it(source: str):
    """Every web address is led through us, nothing else changes, and it leads where it led."""
    source = f"<html><body>{source}</body></html>"
    before, after = hrefs(source), hrefs(CLICKS.apply(source, 7, 300))
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        wanted = target_of(old)
        assert (target(new) == wanted) if wanted is not None else new == old


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("<>ahref=/\"' \n!-b?&;"), max_size=60))
def test_whatever_it_is_only_found_places_change(source: str):
    found = find_links(source)
    assert all(html.unescape(source[link.start : link.end]) == link.address for link in found.links)
    assert 0 <= found.body_ends <= len(source)


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("<p>x</p>", "<p>x</p>", ""),
        ("<body><p>x</p></body></html>", "<body><p>x</p>", "</body></html>"),
        ("<BODY>x</BODY\n>", "<BODY>x", "</BODY\n>"),
        ("<body>x<!-- </body> --></body>", "<body>x<!-- </body> -->", "</body>"),
    ],
)
def test_the_picture_stands_at_the_end_of_the_body(source: str, before: str, after: str):
    opens = TrackedLinks(BASE, SECRET, opens=True).apply(source, 7, 300)
    assert opens.startswith(before + "<img ")
    assert opens.endswith(">" + after)
    (url,) = re.findall(r'src="([^"]+)"', opens)
    assert read_open(SECRET, url.removeprefix(f"{BASE}/o/")) == (7, 300)
    assert opens.count("<img") == 1


def test_nothing_happens_unless_it_was_asked_for():
    source = '<a href="https://example.com">x</a>'
    assert TrackedLinks(BASE, SECRET).apply(source, 7, 300) == source


def test_ten_thousand_links_are_ten_thousand():
    """None credits another's click."""
    seen = {}
    for number in range(10_000):
        campaign, delivery, link = number % 7 + 1, number // 7 + 1, f"https://example.com/{number % 11}"
        token, encoded = CLICKS.click_url(campaign, delivery, link).rsplit("/", 2)[1:]
        assert read_click(SECRET, token, encoded) == (campaign, delivery, link)
        seen[token, encoded] = True
    assert len(seen) == 10_000


def test_one_kind_of_token_is_none_of_another():
    opened = BOTH.open_url(7, 300).rsplit("/", 1)[1]
    clicked, encoded = CLICKS.click_url(7, 300, "https://example.com").rsplit("/", 2)[1:]
    unsubscribe = make_token(SECRET, 7, 300)
    for token in (clicked, unsubscribe):
        with pytest.raises(InvalidToken):
            read_open(SECRET, token)
    for token in (opened, unsubscribe):
        with pytest.raises(InvalidToken):
            read_click(SECRET, token, encoded)
    for token in (opened, clicked):
        with pytest.raises(InvalidToken):
            read_token(SECRET, token)


def test_no_other_target_fits_a_token():
    token, encoded = CLICKS.click_url(7, 300, "https://example.com/").rsplit("/", 2)[1:]
    other = CLICKS.click_url(7, 300, "https://evil.example").rsplit("/", 1)[1]
    for wrong in (other, encoded[:-1], encoded + "A", "", "=", "a", "ä", encoded.swapcase()):
        with pytest.raises(InvalidToken):
            read_click(SECRET, token, wrong)
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(InvalidToken):
            read_click(SECRET, changed, encoded)


def test_the_log_knows_a_link_by_its_digest():
    assert re.fullmatch("[0-9a-f]{32}", link_digest("https://example.com/?email=ann@example.com"))


def test_a_mail_with_links_made_of_values():
    """Rendered first, led through us after; the unsubscribe link, its header and the text part stay as they were."""
    letter = Letter(
        subject="Hello",
        sender=parse_mailbox("news@shop.example"),
        html='<p><a href="https://shop.example/{{ page }}?n={{ name }}">x</a>'
        ' <a href="{{ unsubscribe_url }}">out</a></p>',
    )
    recipient = Recipient(300, 7, "ann@example.com", "Ann & Co", "ann", {"page": "a%2Fb"})
    links = UnsubscribeLinks(BASE, SECRET)

    def mail(tracked: TrackedLinks | None) -> dict[str, str]:
        composed = prepare(letter).compose(
            recipient,
            campaign=Campaign("spring", "bulk"),
            date=datetime(2026, 11, 30, tzinfo=UTC),
            attempt=1,
            unsubscribe=links,
            tracked=tracked,
        )
        parsed = message_from_bytes(composed.content, policy=policy.default)
        parts = {part.get_content_subtype(): part.get_content() for part in parsed.iter_parts()}
        return parts | {"unsubscribe": str(parsed["List-Unsubscribe"])}

    plain, tracked = mail(None), mail(BOTH)
    assert tracked["plain"] == plain["plain"]
    assert tracked["unsubscribe"] == plain["unsubscribe"] == f"<{links.url(7, 300)}>"
    through, out = hrefs(tracked["html"])
    assert target(through) == hrefs(plain["html"])[0].replace(" ", "%20")
    assert out == links.url(7, 300)
    assert tracked["html"].count("<img") == 1
