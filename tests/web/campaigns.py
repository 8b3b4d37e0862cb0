"""Campaigns to test with, made by the API."""

from __future__ import annotations

from typing import Any

from tests.web.conftest import Answer, Api

LETTER = '<p>Hello {{ name|default("you") }},</p><p><a href="{{ unsubscribe_url }}">no more of this</a></p>'


async def null_sender(api: Api, name: str = "nowhere") -> str:
    """A sender that takes every mail and sends none; its id."""
    answer = await api.post("/v1/senders", {"name": name, "url": "null://"})
    assert answer.status in (201, 409), answer.content
    return name


def asked(**fields: Any) -> dict[str, Any]:
    """What a campaign is made of."""
    return {
        "name": "spring",
        "subject": "Hello",
        "from": "Shop <news@shop.example>",
        "html": LETTER,
        "sender": "nowhere",
        **fields,
    }


async def new_campaign(api: Api, **fields: Any) -> Any:
    """A draft."""
    await null_sender(api)
    answer = await api.post("/v1/campaigns", asked(**fields))
    assert answer.status == 201, answer.content
    return answer.json


async def people(api: Api, campaign: Any, count: int) -> Any:
    """So many recipients."""
    rows = [{"email": f"p{n}@example.org", "key": f"k{n}", "name": f"Person {n}"} for n in range(count)]
    answer = await api.post(f"/v1/campaigns/{campaign['id']}/recipients", rows)
    assert answer.status in (200, 201), answer.content
    return answer.json


async def act(api: Api, campaign: Any, action: str, body: Any = None, **options: Any) -> Answer:
    """One of the actions."""
    return await api.post(f"/v1/campaigns/{campaign['id']}/{action}", body, **options)
