"""docs/readers.md: its queries run, and say what stands beside them."""

import re
from pathlib import Path

from postledger.database import Connection
from postledger.ledger import readers
from postledger.ledger.readers import Engagement
from postledger.messages.tracking import link_digest
from tests.web.conftest import Api
from tests.web.public.reading import mailed

PAGE = (Path(__file__).parents[3] / "docs" / "readers.md").read_text(encoding="utf-8")


def queries() -> list[str]:
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    return [one for one in re.sub(r"--.*", "", block).split(";") if one.strip()]


async def test_the_queries_of_the_page(api: Api, db: Connection):
    mail = await mailed(api, db)
    assert mail.campaign == 1
    sale = link_digest("https://shop.example/sale")
    seen = [
        Engagement(1, mail.delivery, "Opened"),
        Engagement(1, mail.delivery + 1, "Opened", None, "prefetch"),
        *(Engagement(1, mail.delivery, "Clicked", link) for link in (sale, "b", "c")),
    ]
    assert await readers.note(db, seen, timeout=10) == 5
    by_campaign, by_link, digest, believed = queries()
    assert [tuple(row) for row in await db.fetch(by_campaign)] == [(1, 1, 1)]
    assert {tuple(row) for row in await db.fetch(by_link)} == {(sale, 1), ("b", 1)}  # the third was a burst
    assert await db.fetchval(digest) == sale
    assert await db.fetch(believed) == []
    await api.post(mail.path, key=None)
    assert [tuple(row) for row in await db.fetch(believed)] == [(1, mail.delivery)]
