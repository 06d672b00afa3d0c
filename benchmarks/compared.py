"""The peers' equivalents of our work, and their calls; measures through ``peers``."""

from collections.abc import Iterator
from typing import Any

from .bench import Bench
from .client import Client
from .measure import Operation
from .peers.beside import described
from .peers.environments import DBOS, JSONRPCSERVER, LANGGRAPH, SWARM_MAIL
from .rows import NOTHING, Promise, Row

DATA = {"n": 1}


def checkpoint(
    bench: Bench,
    name: str,
    ours: Operation,
    state: Any,
    *,
    runs: int,
    settle: Operation,
    promise: Promise,
) -> Iterator[Row]:
    """Let the peers store the same document as our checkpoint; ours collects it first.

    ``promise`` is for the comparison with LangGraph.
    """
    for peer, does, promised in (
        (LANGGRAPH, "put of the same state", promise),
        (DBOS, "set_event of the same state", NOTHING),
    ):
        yield from bench.peers.beside(
            peer,
            name,
            ours,
            "checkpoint",
            does=does,
            runs=bench.often(runs),
            promise=promised,
            settle=settle,
            state=state,
        )


def event(bench: Bench, name: str, ours: Operation) -> Iterator[Row]:
    """Let the peers record their smallest durable unit."""
    for peer, does, promise in (
        (LANGGRAPH, "put_writes of one write", Promise(ratio=1.4)),
        (DBOS, "run_step in a workflow", NOTHING),
        (SWARM_MAIL, "appendEvent", NOTHING),
    ):
        yield from bench.peers.beside(
            peer,
            name,
            ours,
            "event",
            does=does,
            runs=bench.often(100),
            promise=promise,
            data=DATA,
        )


def writers(bench: Bench, name: str, ours: Operation, *, writers: int, each: int) -> Iterator[Row]:
    """Let as many clients write at once in each peer; a run is a round of all of them."""
    for peer, does in (
        (LANGGRAPH, "put_writes on threads"),
        (DBOS, "run_step in workflows on threads"),
        (SWARM_MAIL, "appendEvent, promises at once"),
    ):
        yield from bench.peers.beside(
            peer,
            name,
            ours,
            "writers",
            does=does,
            runs=bench.often(5),
            writers=writers,
            each=each,
            data=DATA,
        )


def lock(bench: Bench, name: str, ours: Operation, file: str) -> Iterator[Row]:
    """Let swarm-mail reserve and release a file; the other peers have no equivalent."""
    yield from bench.peers.beside(
        SWARM_MAIL,
        name,
        ours,
        "lock",
        does="reserveFiles, releaseFiles",
        runs=bench.often(100),
        promise=Promise(ratio=0.9),
        file=file,
    )


def mail(bench: Bench, name: str, ours: Operation, letter: dict[str, Any]) -> Iterator[Row]:
    """Let the peers send a message, read it and acknowledge it."""
    for peer, does, promise in (
        (
            SWARM_MAIL,
            "sendMessage, getInbox, markMessageAsRead, acknowledgeMessage",
            Promise(ratio=0.7),
        ),
        (DBOS, "send, recv in a workflow", NOTHING),
    ):
        yield from bench.peers.beside(
            peer,
            name,
            ours,
            "mail",
            does=does,
            runs=bench.often(50),
            promise=promise,
            letter=letter,
        )


def listing(
    bench: Bench, name: str, ours: Operation, state: Any, *, missions: int, each: int
) -> Iterator[Row]:
    """Let LangGraph list the same number of checkpoints of the same size."""
    bench.peers.prepare(LANGGRAPH, "fill", state=state, missions=missions, each=each)
    yield from bench.peers.beside(
        LANGGRAPH, name, ours, "list", does="list(limit=10)", runs=bench.often(10), limit=10
    )


def latest(bench: Bench, name: str, ours: Operation, state: Any) -> Iterator[Row]:
    """Let the peers return the newest of the same states."""
    for peer, work, does, promise in (
        (LANGGRAPH, "checkpoint", "get_tuple", Promise(ratio=3)),
        (DBOS, "fill", "get_event", NOTHING),
    ):
        runs = {"runs": 1} if work == "checkpoint" else {}
        bench.peers.prepare(peer, work, state=state, **runs)
        yield from bench.peers.beside(
            peer,
            name,
            ours,
            "latest",
            does=does,
            runs=bench.often(100),
            promise=promise,
            state=state,
        )


def round_trip(bench: Bench, name: str, method: str) -> Iterator[Row]:
    """Let jsonrpcserver send the same client the same reply, also over a socket."""
    fleet = bench.fleet
    reply = fleet.call(method)
    if facts := bench.peers.facts(JSONRPCSERVER, method=method, reply=reply):
        with Client(facts["socket"]) as client:
            yield bench.beside(
                name,
                lambda: fleet.call(method),
                lambda: client.call(method, {}),
                runs=300,
                reference=JSONRPCSERVER.name,
                peer=described(JSONRPCSERVER, facts, "dispatch of the same call"),
            )
