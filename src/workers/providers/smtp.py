"""`smtp://` and `smtps://`: mail through a relay, over sessions that are kept and used again."""

from functools import partial
from typing import Self

from ...errors import ConfigurationError, UnavailableError
from ..replies import Reply, classify
from .base import Begin, Envelope, NotBegun
from .smtp_connect import connect
from .smtp_pool import SmtpPool
from .smtp_session import SmtpSession
from .smtp_settings import SmtpSettings
from .urls import ProviderUrl

_FAILED_AT = {
    "connect": "cannot be reached",
    "ehlo": "let nobody in",
    "auth": "refused the login",
}


class SmtpProvider:
    """One recipient per mail, at most `concurrency` sessions. It never retries what may have been taken."""

    name = "smtp"
    batch = 1
    renders = True

    def __init__(self, settings: SmtpSettings, *, concurrency: int) -> None:
        self._settings = settings
        self._pool = SmtpPool(partial(connect, settings), concurrency)

    @classmethod
    def make(cls, url: ProviderUrl, *, concurrency: int) -> Self:
        return cls(SmtpSettings.read(url), concurrency=concurrency)

    async def open(self) -> None:
        """Sets up one session, login included, and keeps it for the first mail."""
        try:
            self._pool.give(await self._pool.take())
        except NotBegun as refusal:
            raise self._unusable(refusal.reply) from refusal

    async def send(self, envelope: Envelope, begin: Begin) -> Reply:
        session, reply = await self._once(envelope, begin, new=False)
        if session.went_stale(reply):
            # The relay had dropped the session before this mail began: that costs nobody an attempt.
            _, reply = await self._once(envelope, begin, new=True)
        return reply

    async def close(self) -> None:
        await self._pool.close()

    async def _once(self, envelope: Envelope, begin: Begin, *, new: bool) -> tuple[SmtpSession, Reply]:
        session = await self._pool.take(new=new)
        try:
            if (refusal := session.unfit(envelope)) is not None:
                return session, refusal
            await begin()
            return session, await session.deliver(envelope)
        finally:
            self._pool.give(session)

    def _unusable(self, reply: Reply) -> ConfigurationError | UnavailableError:
        where = f"{self._settings.host}:{self._settings.port}"
        text = " / ".join(reply.text.split("\n"))
        line = f"sender: the relay {where} {_FAILED_AT.get(reply.stage, 'failed')}: {text}"
        if classify(reply).kind == "permanent_batch":
            return ConfigurationError(f"{line}; check host, port, user and password in the sender URL")
        return UnavailableError(f"{line}; try again later, or check host and port in the sender URL")
