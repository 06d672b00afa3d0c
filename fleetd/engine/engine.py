"""Engine: the one way into a transaction, for clients and timers alike.

``handle`` answers a request from the wire. Most are rules, which ``run`` runs in one transaction;
services need more (files, waiting, Git) and are built from ``run``, ``read`` and ``write``. The
latter two run any rule, ``rule(tx, ctx, ...)``, for the daemon itself.
"""

import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
import trio
from msgspec import Raw

from ..config import Config, Loaded
from ..domain import rules  # noqa: F401 - registers them
from ..domain.core.context import BatchSizes, Caller, Context, Facts
from ..domain.core.event_log import settle
from ..domain.core.idempotency import recall, remember
from ..domain.core.registry import REGISTERED, is_optimistic, may_use_reserve, needs_no_turn
from ..domain.core.tx import (
    ConfirmAsks,
    Effect,
    LogLine,
    RemoveBackup,
    Ring,
    Tx,
    WatchProcess,
    WriteBackup,
)
from ..domain.redaction.requests import without_prompt, without_secrets
from ..host.clock import Uptime
from ..host.cpu_worker import CpuWorker
from ..host.file_system import FileSystem, with_real_paths
from ..host.paths import opencode_database
from ..protocol.errors import FleetError, MethodNotFound, Storage
from ..protocol.request import Mutation, Request
from ..protocol.types import Noun
from ..store.api import Availability, Optimistic, StoreAway, WithoutTurn
from ..store.files.layout import LAYOUTS, PULLED
from ..store.files.record_files import RecordFiles
from ..store.open import open_store
from ..store.spool import Spool
from ..store.sqlite.disk_reserve import DiskReserve
from ..store.sqlite.errors import DiskFull
from .change_feed import Bell, ChangeFeed
from .files.latest_checkpoints import LatestCheckpoints
from .files.outbox import Outbox
from .hooks.session_queue import SessionQueue
from .hooks.sighting_counts import SightingCounts
from .metrics.counters import TimerHealth, Traffic
from .process_watcher import ProcessWatcher
from .projects import Projects, refuse_ignored
from .usage.noted import NotedTranscripts

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger("fleetd")

ADMISSION_LOOK_S = 10.0

DAEMON = Caller(kind="daemon", uid=os.getuid(), pid=os.getpid())


def random_id(prefix: str) -> str:
    """Return an id nobody can guess or predict: a prefix and eight hex digits."""
    return f"{prefix}-{secrets.token_hex(4)}"


class Admission:
    """Admits or refuses clients; the daemon's own work does not pass through it.

    It is shut until the daemon is ready. It is shut again while the store is away and until the
    daemon has caught up: events in the spool are older than new requests.
    """

    def __init__(self, availability: Availability, now_ms: Callable[[], int]) -> None:
        self._availability = availability
        self._now_ms = now_ms
        self._opened = trio.Event()
        self._down: trio.Event | None = None

    @property
    def _is_open(self) -> bool:
        """Whether it was opened, and the store has not been away since."""
        return self._down is not None and not self._down.is_set()

    def open(self) -> None:
        """Admit all clients until the store goes away."""
        self._down = self._availability.down
        self._opened.set()

    def shut(self) -> None:
        """Refuse all requests that need the store."""
        self._down = None

    def admit(self, request: Request[Any], caller: Caller) -> None:
        """Admit a request; raises StoreAway for one that the client has to send again later."""
        if self._is_open:
            return
        if caller.kind != "client" or REGISTERED[type(request)].without_store(request):
            return
        if self._availability.away is not None:
            raise self._availability.away.refusal(self._now_ms())
        raise StoreAway(
            "The store is reachable again, and fleetd is catching up with it.",
            hint="Try again in a moment.",
            retry=True,
        )

    async def wait_open(self, beat: Callable[[], None]) -> None:
        """Wait until it is open, however long, and call ``beat`` meanwhile."""
        while not self._is_open:
            beat()
            if self._opened.is_set():  # it was opened before, and is shut again
                self._opened = trio.Event()
            with trio.move_on_after(ADMISSION_LOOK_S):
                await self._opened.wait()


class Engine:
    """The store, the record files and all that works with them; runs rules in transactions."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        clock: Callable[[], int] | None = None,
        uptime: Callable[[], Uptime] | None = None,
        new_id: Callable[[str], str] = random_id,
        inline: bool = False,
        vfs: str | None = None,
        machine: str | None = None,
        batches: BatchSizes | None = None,
    ) -> None:
        self.loaded = loaded
        self.batches = batches or BatchSizes()
        self.cpu_worker = CpuWorker(inline=inline)
        self.bell = Bell()
        self.asks = Bell()
        """Rings when an agent may wait for a permission."""
        self.store_back = Bell()
        """Rings when the store is reachable and the daemon has caught up with it."""
        self.traffic = Traffic()
        self.timer_health = TimerHealth()
        root = loaded.config.checkpoints
        self.backups: dict[Noun, RecordFiles] = {noun: RecordFiles(root, noun) for noun in LAYOUTS}
        self.foreign_records: dict[Noun, frozenset[str]] = {}
        """Records with a file here that belong to a database of this machine, not to the store."""
        self.pulled = RecordFiles(root / PULLED)
        self.store = open_store(
            loaded,
            self._apply_effects,
            self.bell.ring,
            self.bell.followers,
            inline=inline,
            vfs=vfs,
        )
        self.feed = ChangeFeed(self.read_when_available, self.bell)
        self.admission = Admission(self.store.availability, lambda: self.clock())
        self.outbox = Outbox(
            self.read, self.write, self.store.settle, self.backups, self.batches, inline=inline
        )
        self.latest_checkpoints = LatestCheckpoints(
            self.read, self.backups["checkpoint"], self.outbox.in_thread
        )
        self.disk_reserve = DiskReserve(loaded.config.database, self.store.reserve)
        self.process_watcher = ProcessWatcher()
        self.session_queue = SessionQueue(shared=bool(loaded.config.store))
        self.sightings = SightingCounts()
        self.transcripts = NotedTranscripts(str(opencode_database()))
        self.spool = Spool(loaded.spool)
        self.clock = clock or self.store.now_ms
        self.uptime = uptime or self.store.uptime
        self.started_ms = self.clock()
        self.awake_since_ms = self.uptime().awake_ms
        self.closing = False
        self.ready_ms: int | None = None
        """Since when the daemon admits clients."""
        self.machine = machine or self.store.machine
        self.instance = self.store.instance
        self.files = FileSystem(inline=inline)
        self.projects = Projects(self.config.projects, self.machine, self.files)
        self.waiting_locks: set[int] = set()
        """The waits for locks whose clients are still connected."""
        self._new_id = new_id
        self._storage_logged_ms = 0
        self._under_way: dict[tuple[str, str], trio.Event] = {}
        self._itself = OnBehalf(self, DAEMON, Facts())

    def stop_waiting(self) -> None:
        """Notify everything that waits that the daemon is stopping."""
        self.closing = True
        self.store.hurry()
        self.bell.ring()

    def admit_all(self) -> None:
        """Admit all clients, and wake everything that waits for the store."""
        self.ready_ms = self.clock()
        self.admission.open()
        self.bell.ring()
        self.store_back.ring()

    def admit_nobody(self) -> None:
        """Refuse requests that need the store until the daemon has caught up."""
        self.ready_ms = None
        self.admission.shut()

    @property
    def config(self) -> Config:
        """Return the settings in force."""
        return self.loaded.config

    async def ask(self, request: Request[R], caller: Caller) -> R:
        """Answer a request with a record, for the daemon itself; see ``handle``."""
        result = await self.handle(request, caller)
        return request.answer(msgspec.json.decode(result)) if isinstance(result, Raw) else result

    async def handle(
        self,
        request: Request[R],
        caller: Caller,
        *,
        size: int = 0,
        behind: trio.StrictFIFOLock | None = None,
    ) -> R | Raw:
        """Answer a request by its rule or its service, after removing the secrets that it holds.

        Records that are stored in the form in which they are sent are returned as that JSON.

        ``size`` is the maximum number of bytes of text in the request. Requests with the same
        ``behind`` do not overtake each other.

        Raises FleetError for errors that the caller should know; anything else is a bug.
        """
        self.admission.admit(request, caller)
        if not self.config.keep_prompts:
            request = without_prompt(request)
        cleaned = await self.cpu_worker.run(partial(without_secrets, request), size, behind)
        with self.files.remembering():
            request = self.store.as_stored(await with_real_paths(self.files, cleaned))
            if self.config.project_ignore and isinstance(request, Mutation):
                await refuse_ignored(
                    request, self.config.project_ignore, self.machine, self.read, self.files
                )
            found = REGISTERED.get(type(request))
            if found is None:
                raise MethodNotFound("Method not found", method=request.method)
            if found.is_rule:
                answered: R = await self.run(found.answer, request, caller)
                return answered
            result: R | Raw = await found.answer(self, request, caller)
            return result

    async def run(
        self,
        rule: Callable[[Tx, Context, Any], R],
        request: Request[R],
        caller: Caller = DAEMON,
        facts: Facts | None = None,
    ) -> R:
        """Answer a request by a rule, in one transaction; a repeated request gets its first answer.

        Times follow the order of turns, on every machine and however long a request waits. The
        records of a refusal are written after the rollback and before the error is raised.
        """
        return await self.on_behalf_of(caller, facts).run(rule, request)

    async def read(
        self, rule: Callable[Concatenate[Tx, Context, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run one of the daemon's own rules on a consistent read-only snapshot."""
        return await self._itself.read(rule, *args, **named)

    async def write(
        self, rule: Callable[Concatenate[Tx, Context, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run one of the daemon's own rules in a transaction; returns after COMMIT."""
        return await self._itself.write(rule, *args, **named)

    def on_behalf_of(self, caller: Caller, facts: Facts | None = None) -> "OnBehalf":
        """Return a runner of rules that know the caller and the facts from outside the store."""
        return OnBehalf(self, caller, facts or Facts())

    async def read_when_available(
        self, rule: Callable[Concatenate[Tx, Context, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Read; while the store is away, wait until it is back."""
        while True:
            ticket = self.bell.ticket()
            try:
                return await self.read(rule, *args, **named)
            except StoreAway:
                if self.closing:
                    raise
                await self.bell.wait(ticket)

    async def run_once(self, request: Mutation[R], work: Callable[[], Awaitable[R]]) -> R:
        """Do work that is not a single transaction, once per idempotency key.

        A second call under the same key waits for the first one's result; other keys do not wait.
        """
        if request.idempotency_key is None:
            return await work()
        name = (request.method, request.idempotency_key)
        while (earlier := self._under_way.get(name)) is not None:
            await earlier.wait()
        done = self._under_way[name] = trio.Event()
        try:
            known = await self.earlier_answer(request)
            if known is not None:
                return known
            result = await work()
            # The work is done: a client that left meanwhile asks again, and must learn the result.
            with trio.CancelScope(shield=True):
                await self._itself.remember(request, result)
            return result
        finally:
            del self._under_way[name]
            done.set()

    async def earlier_answer(self, request: Mutation[R]) -> R | None:
        """Return the earlier answer to a request under this key, None for a new one.

        For services that look up other state before their transaction: it may be gone when the
        client repeats the request.
        """
        if request.idempotency_key is None:
            return None
        known: R | None = await self.read(recall, request)
        return known

    async def commit(self, rule: Callable[[Tx], T], kind: Hashable, *, frees_space: bool) -> T:
        """Commit a rule; one that frees space may use the reserve when the disk is full."""
        while True:
            try:
                return await self.store.write(rule, kind)
            except DiskFull:
                if not frees_space or not self.disk_reserve.give():
                    raise
                self.store.reuse_wal_soon()

    async def record_refusal(self, refusal: FleetError, caller: Caller) -> None:
        """Write the records of a refusal, after the rollback of its transaction.

        Storage errors are logged once a minute at most: otherwise only clients would see them.
        """
        if isinstance(refusal, Storage) and self.clock() - self._storage_logged_ms > 60_000:
            self._storage_logged_ms = self.clock()
            log.warning("%s", refusal.message)
        for record in refusal.record:
            try:
                await self.on_behalf_of(caller).write(record)
            except FleetError as error:
                log.warning("The refusal of a request could not be recorded: %s", error.message)

    def context(self, caller: Caller, facts: Facts, begun: int) -> Context:
        """Return the context of a rule whose turn is now; ``begun`` is when it was requested."""
        up = self.uptime()
        return Context(
            now_ms=self.clock(),
            awake_ms=up.awake_ms,
            boot_id=up.boot_id,
            new_id=self._new_id,
            caller=caller,
            config=self.config,
            facts=facts,
            machine=self.machine,
            elapsed_ms=lambda: (time.monotonic_ns() - begun) // 1_000_000,
            batches=self.batches,
        )

    def _apply_effects(self, effects: list[Effect]) -> None:
        """Carry out effects in order; a failing one is logged and does not stop the others."""
        for effect in effects:
            try:
                self._apply_effect(effect)
            except Exception:
                log.exception("%s could not be carried out", type(effect).__name__)

    def _apply_effect(self, effect: Effect) -> None:
        if isinstance(effect, LogLine):
            log.log(logging.getLevelNamesMapping()[effect.level], "%s", effect.text)
        elif isinstance(effect, WriteBackup | RemoveBackup):
            self.outbox.post(effect)
        elif isinstance(effect, WatchProcess):
            self.process_watcher.post(effect)
        elif isinstance(effect, Ring):
            self.bell.ring()
        elif isinstance(effect, ConfirmAsks):
            self.asks.ring()


class OnBehalf:
    """Runs rules for one caller, each in its own transaction when its turn comes."""

    def __init__(self, engine: Engine, caller: Caller, facts: Facts) -> None:
        self._engine = engine
        self._caller = caller
        self._facts = facts

    async def run(self, rule: Callable[[Tx, Context, Any], R], request: Request[R]) -> R:
        """Answer a request by a rule; see ``Engine.run``."""
        if isinstance(request, Mutation):
            return await self._commit(self._prepared(_once, (rule, request), {}), rule)
        return await self.read(rule, request)

    async def read(
        self, rule: Callable[Concatenate[Tx, Context, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a rule on a consistent read-only snapshot."""
        return await self._engine.store.read(self._prepared(rule, args, named), _kind(rule))

    async def write(
        self, rule: Callable[Concatenate[Tx, Context, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a rule in a transaction; returns after COMMIT, raises after the rollback."""
        return await self._commit(self._prepared(rule, args, named), rule)

    async def remember(self, request: Mutation[R], result: R) -> None:
        """Remember a service's answer; a service that frees space may use the reserve for it."""
        work = self._prepared(remember, (request, result), {})
        await self._commit(work, REGISTERED[type(request)].answer)

    async def _commit(self, work: Callable[[Tx], T], rule: Callable[..., Any]) -> T:
        try:
            frees_space = may_use_reserve(rule)
            if is_optimistic(rule):
                work = Optimistic(work)
            elif needs_no_turn(rule):
                work = WithoutTurn(work)
            return await self._engine.commit(work, _kind(rule), frees_space=frees_space)
        except FleetError as refusal:
            await self._engine.record_refusal(refusal, self._caller)
            raise

    def _prepared(
        self, rule: Callable[..., T], args: tuple[Any, ...], named: dict[str, Any]
    ) -> Callable[[Tx], T]:
        engine, begun = self._engine, time.monotonic_ns()
        as_stored = engine.store.as_stored
        args, named = tuple([as_stored(each) for each in args]), as_stored(named)
        facts = as_stored(self._facts)

        def work(tx: Tx) -> T:
            ctx = tx.context(partial(engine.context, self._caller, facts, begun))
            result = rule(tx, ctx, *args, **named)
            settle(tx, ctx)
            return result

        return work


def _kind(rule: Callable[..., Any]) -> Hashable:
    """Return the rule as the key of what a store remembers about it; None for a temporary one."""
    return rule if isinstance(rule, FunctionType) and "<" not in rule.__qualname__ else None


def _once(tx: Tx, ctx: Context, rule: Callable[[Tx, Context, Any], Any], request: Any) -> Any:
    """Run a writing rule, or return its first answer."""
    if request.idempotency_key is None:
        return rule(tx, ctx, request)
    known = recall(tx, ctx, request)
    if known is not None:
        return known
    result = rule(tx, ctx, request)
    remember(tx, ctx, request, result)
    return result
