"""Our path and a peer's in turn, a block of runs each, as a row; must not know peers by name."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..measure import Operation, Samples, timed
from ..rows import NOTHING, Beside, Promise, Row, row
from .environments import Peer
from .process import Broken, PeerProcess

# The order in each pair of blocks is random.
BLOCKS = 10


class Peers:
    """The peers of a run, each started on first use; ``absent`` has the missing ones and why."""

    def __init__(self, directory: Path, order: random.Random, *, wanted: bool) -> None:
        self.absent: dict[str, str] = {}
        self._directory = directory
        self._order = order
        self._wanted = wanted
        self._running: dict[str, tuple[PeerProcess, dict[str, Any]]] = {}

    def prepare(self, peer: Peer, work: str, **inputs: Any) -> None:
        """Let a peer prepare its data; this is not measured."""
        self._try(peer, lambda process: process.ask(work, **inputs))

    def facts(self, peer: Peer, **inputs: Any) -> dict[str, Any] | None:
        """Start a peer unless it runs; return its description of itself, None when it is absent."""
        if not self._wanted or peer.name in self.absent:
            return None
        if peer.name not in self._running:
            if why := peer.missing():
                self.absent[peer.name] = why
                return None
            place = self._directory / peer.name.replace(" ", "-")
            process = PeerProcess(peer, place)
            try:
                facts = process.ask("open", directory=str(place), **inputs)
            except Broken as error:
                process.close()
                self.absent[peer.name] = str(error)
                return None
            self._running[peer.name] = process, facts
        return self._running[peer.name][1]

    def close(self) -> None:
        """Stop running peers, so that they do not disturb the next measurement."""
        while self._running:
            _, (process, _) = self._running.popitem()
            process.close()

    def beside(
        self,
        peer: Peer,
        name: str,
        ours: Operation,
        work: str,
        *,
        does: str,
        runs: int,
        promise: Promise = NOTHING,
        settle: Operation | None = None,
        **inputs: Any,
    ) -> list[Row]:
        """Measure our path and the peer's; ``does`` names the peer's operation."""
        samples, theirs = Samples([]), Samples([])
        each = max(1, runs // BLOCKS)

        def measure(process: PeerProcess) -> None:
            def ask() -> None:
                theirs.times_ms += process.ask(work, runs=each, **inputs)["times_ms"]

            def run() -> None:
                samples.times_ms += [_settled(ours, settle) for _ in range(each)]

            turns = [ask, run]
            for _ in range(min(BLOCKS, runs)):
                self._order.shuffle(turns)
                for turn in turns:
                    turn()

        if not self._try(peer, measure):
            return []
        beside = described(peer, self._running[peer.name][1], does)
        return [row(name, samples, theirs, reference=peer.name, promise=promise, peer=beside)]

    def _try(self, peer: Peer, ask: Callable[[PeerProcess], object]) -> bool:
        """Return whether the call succeeded; a peer that breaks is absent from then on."""
        if self.facts(peer) is None:
            return False
        try:
            ask(self._running[peer.name][0])
        except Broken as error:
            self.absent[peer.name] = str(error)
            return False
        return True


def described(peer: Peer, facts: dict[str, Any], does: str) -> Beside:
    """Return the table's description of a peer, from its own."""
    return Beside(
        name=peer.name,
        does=does,
        version=facts["version"],
        way=facts["way"],
        journal_mode=facts.get("journal_mode"),
        synchronous=facts.get("synchronous"),
        sqlite=facts.get("sqlite"),
    )


def _settled(operation: Operation, settle: Operation | None) -> float:
    took = timed(operation)
    if settle is not None:
        settle()
    return took
