"""The pages in a real browser: without scripts, by keyboard, for a screen reader, in the dark."""

from collections.abc import Iterator

import pytest

from postledger.database import Connection
from postledger.http.public.texts import TEXTS
from tests.web.conftest import Api
from tests.web.public.browser import CHROMIUM, Tab, browser, browsing
from tests.web.public.reading import mailed

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")

TAB, SPACE, ENTER, DOWN = ("Tab", 9), (" ", 32, " "), ("Enter", 13, "\r"), ("ArrowDown", 40)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with browser(tmp_path_factory.mktemp("chromium")) as port:
        yield port


async def test_by_keyboard_and_without_scripts(api: Api, db: Connection, chromium: int):
    mail = await mailed(api, db, list_name="news")
    texts = TEXTS["de"]
    async with browsing(chromium, language="de") as tab:
        await tab.open(api.url + mail.path)
        seen = await tab.accessible()
        check_structure(seen, texts.ask)
        assert ("radio", texts.only_list.format(list="news")) in seen
        assert ("radio", texts.everything) in seen
        assert ("button", texts.button) in seen
        assert texts.what in [name for role, name in seen if role == "group"]
        assert await mail.events() == []

        await tab.press(*TAB)  # to the radios
        await tab.press(*DOWN)  # the second
        await tab.press(*TAB)  # to the button
        await tab.press_and_load(*ENTER)
        assert ("heading", texts.done) in await tab.accessible()
        assert await mail.events() == [("Unsubscribed", {"channel": "page"})]
        assert set(tab.requested) <= {api.url + mail.path, f"{api.url}/favicon.ico", "about:blank"}
        assert not [said for said in tab.complaints if "Content Security Policy" in said], tab.complaints


async def test_one_list_then_all_by_keyboard(api: Api, db: Connection, chromium: int):
    mail = await mailed(api, db, list_name="news")
    async with browsing(chromium) as tab:
        await tab.open(api.url + mail.path)
        await tab.press(*TAB)
        await tab.press(*TAB)
        await tab.press_and_load(*SPACE)
        assert [body["list"] for _, body in await mail.events()] == [str(mail.list)]
        assert ("button", TEXTS["en"].button_everything) in await tab.accessible()
        await tab.press(*TAB)
        await tab.press_and_load(*ENTER)
        assert len(await mail.events()) == 2
        assert "button" not in [role for role, _ in await tab.accessible()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_can_be_read_and_hit(api: Api, db: Connection, chromium: int, scheme: str):
    """WCAG 2.2: contrast 4.5 to 1 at least (1.4.3), targets (2.5.8), reflow at 320 pixels (1.4.10), focus (2.4.7)."""
    mail = await mailed(api, db, list_name="a list with a name that is quite long and_one_word_" + "x" * 60)
    async with browsing(chromium, scripts=True) as tab:
        await tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await tab.call("Emulation.setDeviceMetricsOverride", width=320, height=640, deviceScaleFactor=1, mobile=True)
        await tab.open(api.url + mail.path)
        assert await tab.evaluate("document.documentElement.scrollWidth") <= 320
        for place in ("body", "button", "legend", "h1"):
            assert await contrast(tab, place) >= 4.5, place
        sizes = "[...document.querySelectorAll('button, label')].map(one => one.getBoundingClientRect().height)"
        assert min(await tab.evaluate(sizes)) >= 44
        await tab.press(*TAB)
        await tab.press(*TAB)
        outline = "getComputedStyle(document.activeElement).outlineStyle + document.activeElement.tagName"
        assert await tab.evaluate(outline) == "solidBUTTON"


async def test_a_page_for_a_link_that_is_none(api: Api, db: Connection, chromium: int):
    async with browsing(chromium, language="ru") as tab:
        await tab.open(f"{api.url}/u/damaged")
        check_structure(await tab.accessible(), TEXTS["ru"].not_found)


def check_structure(seen: list[tuple[str, str]], title: str) -> None:
    """A title, one heading, one main region."""
    assert seen[0] == ("RootWebArea", title)
    assert [name for role, name in seen if role == "heading"] == [title]
    assert [role for role, _ in seen].count("main") == 1


CONTRAST = """
(() => {
  const read = colour => colour.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  let one = document.querySelector('PLACE');
  const ink = light(read(getComputedStyle(one).color));
  while (one && read(getComputedStyle(one).backgroundColor)[3] === 0) one = one.parentElement;
  const paper = light(read(getComputedStyle(one).backgroundColor));
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
})()
"""


async def contrast(tab: Tab, place: str) -> float:
    """Of its letters against what is behind them, as WCAG counts it."""
    return float(await tab.evaluate(CONTRAST.replace("PLACE", place)))
