"""The only way in: executes a request in one transaction, for clients and timers alike.

``execute`` is one transaction. Methods that need more (files, waiting, Git) are operations; they
are built from ``execute`` and registered with ``operation``. ``perform`` finds the right one.
"""

import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, get_type_hints

import trio

from ..config import Config, Loaded
from ..domain.core.context import Caller, Context, Facts
from ..domain.core.idempotency import recall, remember
from ..domain.core.tx import Effect, Tx
from ..domain.redaction.requests import without_prompt, without_secrets
from ..domain.rules import HANDLERS
from ..host.clock import Uptime
from ..host.file_system import FileSystem, with_real_paths
from ..protocol.errors import FleetError, MethodNotFound, Storage
from ..protocol.request import Mutation, Query, Request
from ..protocol.types import Noun
from ..store.availability import StoreAway
from ..store.files.layout import LAYOUTS, PULLED
from ..store.files.record_files import Backups
from ..store.open import open_store
from ..store.spool import Spool
from ..store.sqlite.disk_reserve import Ballast
from ..store.sqlite.errors import DiskFull
from .admission import Gate
from .bell import Bell
from .change_feed import Feed
from .cpu_worker import Aside
from .effects import carry_out
from .files.outbox import Outbox
from .hooks.session_queue import Reception
from .metrics.counters import Traffic
from .metrics.pulses import Pulses
from .process_watcher import Watcher
from .project_ignore import refuse_ignored
from .projects import Projects
from .room import makes_room

R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
log = logging.getLogger("fleetd")

DAEMON = Caller(kind="daemon", uid=os.getuid(), pid=os.getpid())
OPERATIONS: dict[type[Request[Any]], Callable[["Engine", Any, Caller], Awaitable[Any]]] = {}


def operation(function: F) -> F:
    """Register ``async function(engine, request: SomeRequest, caller)`` for its request."""
    OPERATIONS[get_type_hints(function)["request"]] = function
    return function


def random_id(prefix: str) -> str:
    """Return an id nobody can guess or predict: a prefix and eight hex digits."""
    return f"{prefix}-{secrets.token_hex(4)}"


class Engine:
    """Holds the store, the backups and the bell together; samples time and ids once a request."""

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
    ) -> None:
        self.loaded = loaded
        self.aside = Aside(inline=inline)
        self.bell = Bell()
        self.returned = Bell()
        """Rings when the store is there, and everything that has to come first is done."""
        self.traffic = Traffic()
        self.pulses = Pulses()
        root = loaded.config.checkpoints
        self.backups: dict[Noun, Backups] = {noun: Backups(root, noun) for noun in LAYOUTS}
        self.pulled = Backups(root / PULLED)
        self.store = open_store(loaded, self._committed, self.bell.ring, inline=inline, vfs=vfs)
        self.feed = Feed(self.look, self.bell)
        self.gate = Gate(self.store.reach, lambda: self.clock())
        self.outbox = Outbox(self.execute, self.backups, inline=inline)
        self.ballast = Ballast(loaded.config.database, self.store.reserve)
        self.watcher = Watcher()
        self.reception = Reception()
        self.spool = Spool(loaded.spool)
        self.clock = clock or self.store.now_ms
        self.uptime = uptime or self.store.uptime
        self.started_ms = self.clock()
        self.awake_since_ms = self.uptime().awake_ms
        self.closing = False
        self.ready_ms: int | None = None
        """Since when everybody is let in."""
        self.machine = machine or self.store.machine
        self.incarnation = self.store.incarnation
        self.files = FileSystem(inline=inline)
        self.projects = Projects(self.config.projects, self.machine, self.files)
        self.in_line: set[int] = set()
        """The waits for locks that somebody stands behind."""
        self._new_id = new_id
        self._trouble_told_ms = 0
        self._under_way: dict[tuple[str, str], trio.Event] = {}

    def stop_waiting(self) -> None:
        """Let everybody who waits for something know that the daemon ends."""
        self.closing = True
        self.store.hurry()
        self.bell.ring()

    def admit_all(self) -> None:
        """Let everybody in, and have those look who waited for the store."""
        self.ready_ms = self.clock()
        self.gate.open()
        self.bell.ring()
        self.returned.ring()

    def admit_nobody(self) -> None:
        """Let nobody in who needs the store, until everything that has to come first is done."""
        self.ready_ms = None
        self.gate.shut()

    @property
    def config(self) -> Config:
        """Return the settings in force."""
        return self.loaded.config

    async def perform(
        self,
        request: Request[R],
        caller: Caller,
        facts: Facts | None = None,
        *,
        size: int = 0,
        behind: trio.StrictFIFOLock | None = None,
    ) -> R:
        """Answer a request by its operation or its rule; what it holds of secrets is left behind.

        ``facts`` are for rules, from who has looked at the file system and names real paths;
        operations gather their own. ``size`` is how many bytes of text the request can hold at
        most; none overtakes those before it that stay ``behind`` the same.

        Raises FleetError for what the caller should know; anything else is a bug.
        """
        self.gate.admit(request, caller)
        if not self.config.keep_prompts:
            request = without_prompt(request)
        cleaned = await self.aside.run(partial(without_secrets, request), size, behind)
        with self.files.remembering():
            if facts is None:
                cleaned = await with_real_paths(self.files, cleaned)
            request = self.store.held(cleaned)
            if self.config.project_ignore and isinstance(request, Mutation):
                await refuse_ignored(
                    request, self.config.project_ignore, self.machine, self.execute, self.files
                )
            perform = OPERATIONS.get(type(request))
            if perform is None:
                return await self.execute(request, caller, facts)
            result: R = await perform(self, request, caller)
            return result

    async def execute(
        self, request: Request[R], caller: Caller = DAEMON, facts: Facts | None = None
    ) -> R:
        """Answer a request by its rule, in one transaction, at the time when its turn comes.

        So times are in the order of turns, on whichever machine, however long somebody waits.
        What a refusal wants recorded is executed after the rollback and before the error goes on.
        """
        handler = HANDLERS.get(type(request))
        if handler is None:
            raise MethodNotFound("Method not found", method=request.method)
        request, facts = self.store.held((request, facts or Facts()))
        context = partial(self._context, caller, facts, time.monotonic_ns())
        if not handler.writes:
            return await self.store.read(lambda tx: handler.rule(tx, context(), request))
        try:
            return await self._write(
                request, lambda tx: _answer(tx, request, context(), handler.rule)
            )
        except FleetError as refusal:
            self._note_trouble(refusal)
            for record in refusal.record:
                await self._record(record, caller)
            raise

    async def look(self, request: Query[R]) -> R:
        """Execute what only looks; while the store is away, wait until it is back."""
        while True:
            ticket = self.bell.ticket()
            try:
                return await self.execute(request)
            except StoreAway:
                if self.closing:
                    raise
                await ticket.wait()

    async def remembered(self, request: Mutation[R], work: Callable[[], Awaitable[R]]) -> R:
        """Do a piece of work that is no single transaction once per idempotency key.

        A second call under the same key waits for the first one's result; other keys do not wait.
        """
        if request.idempotency_key is None:
            return await work()
        name = (request.method, request.idempotency_key)
        while (earlier := self._under_way.get(name)) is not None:
            await earlier.wait()
        done = self._under_way[name] = trio.Event()
        try:
            known = await self.recalled(request)
            if known is not None:
                return known
            result = await work()
            ctx = self._context(DAEMON, Facts())
            # It is done: a client that has gone meanwhile asks again, and must be told so.
            with trio.CancelScope(shield=True):
                await self._write(request, lambda tx: remember(tx, ctx, request, result))
            return result
        finally:
            del self._under_way[name]
            done.set()

    async def recalled(self, request: Mutation[R]) -> R | None:
        """Return what a request under this key was answered before, None for a new one.

        For operations that look around before their transaction: what they look at may be gone
        when the request is repeated.
        """
        if request.idempotency_key is None:
            return None
        ctx = self._context(DAEMON, Facts())
        known: R | None = await self.store.read(lambda tx: recall(tx, ctx, request))
        return known

    async def _write(self, request: Request[Any], rule: Callable[[Tx], T]) -> T:
        """Write; what makes room may use the room that is kept for that when the disk is full."""
        while True:
            try:
                return await self.store.write(rule)
            except DiskFull:
                if not makes_room(request) or not self.ballast.give():
                    raise
                self.store.make_way()

    def _note_trouble(self, refusal: FleetError) -> None:
        """Say in the log that the disk refuses, once a minute: clients alone would know."""
        if isinstance(refusal, Storage) and self.clock() - self._trouble_told_ms > 60_000:
            self._trouble_told_ms = self.clock()
            log.warning("%s", refusal.message)

    async def _record(self, record: Request[Any], caller: Caller) -> None:
        try:
            await self.execute(record, caller)
        except FleetError as error:
            log.warning("A refusal could not be recorded: %s", error.message)

    def _context(self, caller: Caller, facts: Facts, begun: int | None = None) -> Context:
        begun = time.monotonic_ns() if begun is None else begun
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
        )

    def _committed(self, effects: list[Effect]) -> None:
        carry_out(effects, self.outbox, self.watcher, self.bell)


def _answer(tx: Tx, request: Any, ctx: Context, rule: Callable[[Tx, Context, Any], Any]) -> Any:
    """Run a writing rule, or return what it answered the first time."""
    if request.idempotency_key is None:
        return rule(tx, ctx, request)
    known = recall(tx, ctx, request)
    if known is not None:
        return known
    result = rule(tx, ctx, request)
    remember(tx, ctx, request, result)
    return result
