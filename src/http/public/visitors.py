"""Tells machines from readers, by what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Those that fetch before, beside or instead of the reader: scanners, previews, monitors, programs.
_MACHINE = re.compile(
    r"bot\b|bot/|crawl|spider|slurp|scan|preview|monitor|headless|fetcher|validator|facebookexternalhit"
    r"|curl/|wget/|python|aiohttp|httpx|go-http-client|java/|okhttp|apache-httpclient|libwww|node-fetch|axios|ruby"
    r"|barracuda|proofpoint|mimecast|safelinks|symantec|fireeye|trendmicro|sophos|cloudmark|forcepoint",
    re.IGNORECASE,
)
_PREFETCH = ("Sec-Purpose", "Purpose", "X-Purpose", "X-Moz")
# Apple's mail privacy loads every picture when a mail arrives, and says no more than this.
_BARE = "Mozilla/5.0"


def automatic(headers: Mapping[str, str]) -> str | None:
    """Why a request is taken for a machine's (prefetch, no_agent, machine); None: for a reader's.

    Google and Yahoo load pictures through proxies when somebody looks at the mail: those count as readers.
    """
    if any(
        word in headers.get(name, "").lower() for name in _PREFETCH for word in ("prefetch", "preview", "prerender")
    ):
        return "prefetch"
    agent = headers.get("User-Agent", "").strip()
    if not agent:
        return "no_agent"
    if agent == _BARE:
        return "prefetch"
    return "machine" if _MACHINE.search(agent) else None
