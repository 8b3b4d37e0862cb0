"""Postledger's worker that seals, and leaves the counting of progress to others: for `bench.following`."""

from bench.contender import main
from bench.postledger_peer import enqueue, init, open_insert, work
from postledger.database import Connection
from postledger.workers.sealer import progress


async def _nothing(conn: Connection, *, timeout: float | None = None) -> int:
    return 0


if __name__ == "__main__":
    progress.follow = _nothing
    main(init=init, enqueue=enqueue, work=work, open_insert=open_insert)
