"""Postledger's worker with a sealer that never wakes: for `bench.following`."""

from bench.contender import main
from bench.postledger_peer import enqueue, init, open_insert, work
from postledger.workers import worker
from postledger.workers.sealer import Sealer


class _Asleep(Sealer):
    def note(self) -> None:
        """Nobody tells it that something was appended."""


if __name__ == "__main__":
    worker.Sealer = _Asleep  # type: ignore[misc]
    main(init=init, enqueue=enqueue, work=work, open_insert=open_insert)
