"""The service behind a pooler in transaction mode: transactions, keys that come again, races, as without one."""

from __future__ import annotations

import asyncio
from collections import Counter

from postledger.database import Connection, Database
from postledger.projections.verify import verify
from tests.web.campaigns import act, asked, new_campaign, people
from tests.web.conftest import open_api


async def test_the_api_works_through_a_pooler(pooled: Database, database: str, app: Connection) -> None:
    async with open_api(pooled.dsn, listen=database) as api:
        campaign = await new_campaign(api)
        await people(api, campaign, 3)
        key = {"Idempotency-Key": "again"}
        first = await api.post("/v1/campaigns", asked(name="summer"), headers=key)
        again = await api.post("/v1/campaigns", asked(name="summer"), headers=key)
        assert (first.status, again.status, again.content) == (201, 201, first.content)
        seen = {"If-Match": (await api.get(f"/v1/campaigns/{campaign['id']}")).headers["ETag"]}
        answers = await asyncio.gather(*(act(api, campaign, "start", headers=seen) for _ in range(6)))
        assert Counter(answer.status for answer in answers) == {200: 1, 412: 5}
    assert (await verify(app, None)).equal
