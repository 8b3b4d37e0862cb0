"""One run of `send`, from checked input to counted outcomes."""

from __future__ import annotations

from asyncio import gather
from email import message_from_bytes, policy
from typing import Any
from uuid import UUID

from attrs import evolve, frozen

from ..config import Config
from ..database import Connection, Database
from ..ledger import campaigns, pages, writing
from ..ledger.audience import staging
from ..ledger.audience.staging import Staged
from ..ledger.documents import campaign_document
from ..ledger.queue import Delivery
from ..ledger.sealing import seal_all
from ..ledger.writing import Order, Written
from ..messages.mime import RenderError
from ..workers.providers.base import Provider
from ..workers.worker import WorkerOptions
from ..workers.writer import Writer
from . import report
from .connecting import opened, straight
from .exits import Exit
from .output import document
from .people import Check, People
from .progress import Display, reading, writing_down
from .runner import Interrupts
from .sending import Ending, send_out


@frozen
class Job:
    """What one `send` is to do; everything in it is checked."""

    config: Config
    order: Order
    variables: frozenset[str]
    people: People
    check: Check
    provider: Provider
    options: WorkerOptions
    json: bool
    quiet: bool
    no_wait: bool
    dry_run: bool
    go_on: str = report.GO_ON
    """What is said to whoever stops it."""

    async def run(self, interrupts: Interrupts) -> int:
        """Connects, writes down, sends; the exit code."""
        interrupts.advice = "stopped before anything was sent; run the same command again to go on"
        async with opened(self.config, install=not self.dry_run) as database:
            await self._check_provider()
            async with straight(self.config, database).connection(label="send") as conn:
                await writing.check_time(conn, self.order)
                staged = await self._stage(conn, straight(self.config, database))
                if self.dry_run:
                    return await self._rehearse(conn, staged.import_id)
                async with writing_down(staged.rows, quiet=self.quiet):
                    written = await self._write(conn, staged.import_id)
                # One that is paused when its hour has come rests on purpose: --at is no word to go on.
                went_on = self.order.at is None and await writing.go_on(conn, written.campaign_id)
                shown = await campaign_document(conn, written.campaign_id)
            if not self.json:
                report.written(shown, written, resumed=went_on)
            if self.no_wait or shown["status"] == "scheduled" or report.nothing_to_do(shown, written):
                await gather(self._renew_statistics(database, written), self._seal(database))
                return self._done(shown, written, Exit.OK)
            await self._renew_statistics(database, written)
            interrupts.advice = f"stopped; {self.go_on}"
            return await self._send(database, written, interrupts)

    async def _check_provider(self) -> None:
        """Nothing is written down for a relay that cannot be reached. (A rehearsal makes no folder either.)"""
        try:
            if not (self.no_wait or (self.dry_run and self.provider.name == "file")):
                await self.provider.open()
        finally:
            await self.provider.close()

    async def _stage(self, conn: Connection, server: Database) -> Staged:
        async with reading(self.people.name, quiet=self.quiet) as progress:
            return await self.people.stage(conn, server, self.check, progress)

    async def _write(self, conn: Connection, import_id: int) -> Written:
        try:
            return await writing.write_down(conn, self.order, import_id, variables=self.variables)
        except Exception:
            if not conn.is_closed():
                await staging.discard(conn, import_id)
            raise

    async def _rehearse(self, conn: Connection, import_id: int) -> int:
        async def look(written: Written) -> tuple[dict[str, Any], dict[str, str]]:
            shown = await campaign_document(conn, written.campaign_id)
            shown["report"] = written.report.to_json()
            shown["id"] = None if written.is_new else shown["id"]
            return shown, await self._first_head(conn, written.campaign_id)

        try:
            shown, head = await writing.rehearse(conn, self.order, import_id, variables=self.variables, look=look)
        finally:
            if not conn.is_closed():
                await staging.discard(conn, import_id)
        if self.json:
            document(shown | {"dry_run": True, "first_message": head})
        else:
            report.rehearsed(shown, head)
        return Exit.OK

    async def _first_head(self, conn: Connection, campaign_id: int) -> dict[str, str]:
        """The header fields of the first recipient's mail, or why it cannot be made."""
        campaign = await campaigns.read(conn, campaign_id)
        writer = await Writer.load(conn, campaign, self.config.url)
        first = await pages.first_recipient(conn, campaign_id)
        assert first is not None
        delivery = Delivery(campaign_id, claim_id=UUID(int=0), fence=0, attempt=1, **first)
        try:
            mail = writer.compose(delivery)
        except RenderError as error:
            return {"error": str(error)}
        parsed = message_from_bytes(mail.content, policy=policy.default)
        return {name: str(value) for name, value in parsed.items()}

    async def _renew_statistics(self, database: Database, written: Written) -> None:
        if written.report.accepted > writing.MANY:
            # The login may own the tables; the role of the app never does.
            async with straight(self.config, database).connection(role=None, label="analyze") as conn:
                await writing.analyze(conn)

    async def _seal(self, database: Database) -> None:
        """No worker of ours does it."""
        async with database.connection(label="seal") as conn:
            await seal_all(conn)

    async def _send(self, database: Database, written: Written, interrupts: Interrupts) -> int:
        display = Display(quiet=self.quiet)
        options = evolve(self.options, only=written.campaign_id)
        async with display.sending():
            ending = await send_out(
                database,
                written.campaign_id,
                options,
                listen=straight(self.config, database),
                interrupts=interrupts,
                display=display,
            )
        async with database.connection(label="send") as conn:
            shown = await campaign_document(conn, written.campaign_id)
        return self._done(shown, written, ending.code, ending)

    def _done(self, shown: dict[str, Any], written: Written, code: Exit, ending: Ending | None = None) -> int:
        if self.json:
            document(shown | {"report": written.report.to_json()})
        elif ending is not None:
            report.ended(shown, stopped=ending.stopped, go_on=self.go_on)
        return code
