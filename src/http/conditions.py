"""If-Match and ETag: who changes a campaign may say which version of it they have seen."""

from __future__ import annotations

import re

from aiohttp import web

from ..database import Connection
from ..ledger import drafting
from ..ledger.campaigns import Campaign
from .problems import Problem

_TAG = re.compile(r'\s*(?:"([0-9]{1,9})"|([0-9]{1,9}))\s*')


def etag(version: int) -> str:
    """The entity tag of a version."""
    return f'"{version}"'


def if_match(request: web.Request, *, required: bool = False) -> frozenset[int] | None:
    """The versions that the request may meet; None: any. Raises Problem."""
    written = request.headers.getall("If-Match", [])
    text = ",".join(written)
    if text.strip() == "*":
        return None
    if not written:
        if required:
            raise Problem(
                "precondition-required",
                "the request does not say which version it changes",
                field="If-Match",
                remedy="send the ETag that you have read as If-Match",
            )
        return None
    found = [_TAG.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise Problem(
            "malformed",
            f"If-Match is {text[:60]!r}",
            field="If-Match",
            remedy='send the ETag that you have read, as in "3"',
        )
    return frozenset(int(one[1] or one[2]) for one in found if one is not None)


async def locked(conn: Connection, campaign_id: int, versions: frozenset[int] | None) -> Campaign:
    """The campaign, alone for this transaction: of many who have seen one version, one gets it. Raises Problem."""
    campaign = await drafting.lock(conn, campaign_id)
    if versions is not None and campaign.version not in versions:
        raise Problem(
            "precondition-failed",
            f"the campaign is at version {campaign.version}",
            field="If-Match",
            remedy="read it again, and decide again",
            headers={"ETag": etag(campaign.version)},
        )
    return campaign
