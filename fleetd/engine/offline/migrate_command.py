"""``fleetd --migrate``: keeps daemons out, carries out a request, and reports line by line.

The request is read from standard input, and each line of the output is JSON: ``fleetctl migrate``
shows it to people.
"""

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import trio

from ...config import Config, Loaded
from ...domain.system import relocation
from ...host.instance_lock import AlreadyRunning, only_instance
from ...host.paths import PathRefused
from ...protocol.errors import FleetError, InvalidParams, InvalidState, Unavailable
from ...protocol.migration import Migration, MigrationReply, MigrationRequest
from ...store.api import StoreRefused
from ...store.open import check_library
from ..engine import Engine

if TYPE_CHECKING:
    from .migrate_store import MigrationEnds

# Nobody needs more frequent reports.
PROGRESS_INTERVAL_S = 0.1
REQUEST_BYTES = 65_536


def run(loaded: Loaded) -> int:
    """Do what standard input asks for; return the exit status."""
    try:
        check_library()
        request = msgspec.json.decode(
            sys.stdin.buffer.readline(REQUEST_BYTES), type=MigrationRequest
        )
        reply = _done(loaded, request)
    except FleetError as error:
        return _refuse(error)
    except msgspec.DecodeError as error:
        return _refuse(
            InvalidParams(f"This is not a valid request: {error}.", hint="Run: fleetctl migrate")
        )
    except (PathRefused, StoreRefused) as error:
        return _refuse(InvalidState(str(error), hint="Nothing was changed."))
    except KeyboardInterrupt:
        return _refuse(InvalidState("Interrupted.", hint="Nothing was moved."))
    _print_reply(reply)
    return int(reply.report is not None and not reply.report.same)


def _done(loaded: Loaded, request: MigrationRequest) -> MigrationReply:
    from .migrate_store import ends_of  # not earlier: it needs the library that was checked

    if request.what == "look":
        return MigrationReply(done=_look(loaded))
    if request.what == "schema":  # other daemons may continue to work meanwhile
        return MigrationReply(done=_schema(ends_of(loaded.config, request)))
    try:
        config = loaded.config
        with only_instance(config.database, config.checkpoints, config.socket):
            if request.what == "undo":
                return MigrationReply(done=_undo(loaded, request))
            return MigrationReply(report=_carried(ends_of(loaded.config, request), request))
    except AlreadyRunning as error:
        raise InvalidState(
            f"{error}; stop it before you move its store.",
            hint="Run: fleetctl daemon stop",
        ) from None


def _look(loaded: Loaded) -> str:
    """Return what a start would find on the server; raises Unavailable with the problem."""
    from ...store.open import check_url
    from ...store.postgres.checks import ServerUnusable, probe

    check_url(loaded)
    try:
        where, found = probe(loaded.config.store)
    except ServerUnusable as unusable:
        what = "refuses to start" if unusable.final else "starts without it, and tries again"
        raise Unavailable(
            f"{unusable.where} {unusable}; fleetd {what}.", retry=not unusable.final
        ) from None
    return f"{where} answers: {found}"


def _carried(ends: "MigrationEnds", request: MigrationRequest) -> Migration:
    from .migrate_store import check, move

    if request.what not in ("move", "check"):
        raise InvalidParams(f"There is no action {request.what!r}.", hint="fleetctl migrate")
    return (check if request.what == "check" else move)(ends, _ProgressPrinter())


def _schema(ends: "MigrationEnds") -> str:
    from ...store.transfer import postgres_side

    if not ends.there:
        raise InvalidParams("fleetd itself creates the schema of a database on this machine.")
    with postgres_side.opened(ends.url, make=True) as side:
        version = side.tx.value("SELECT version FROM schema_version")
        return f"{side.where} has schema version {version}."


def _undo(loaded: Loaded, request: MigrationRequest) -> str:
    """Continue with a store that was moved away."""
    store = {"": loaded.config.store, "sqlite": ""}.get(request.to, request.to)
    config = msgspec.structs.replace(loaded.config, store=store)
    return trio.run(_reopened, msgspec.structs.replace(loaded, config=config), config)


async def _reopened(loaded: Loaded, config: Config) -> str:
    engine = Engine(loaded, inline=True)
    engine.store.start()
    try:
        reopened = await engine.write(relocation.reopen)
    finally:
        await engine.store.aclose()
    where = "The shared store" if config.store else f"The database {config.database}"
    if not reopened:
        raise InvalidState(
            f"{where} was not moved, so there is nothing to undo.",
            hint="fleetctl daemon start uses it.",
        )
    return f"{where} is in use again, under a new epoch."


class _ProgressPrinter:
    """Reports the progress from time to time."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            _print_reply(MigrationReply(progress=(what, done, total)))
            self._next = time.monotonic() + PROGRESS_INTERVAL_S


def _print_reply(reply: MigrationReply) -> None:
    with suppress(BrokenPipeError):  # the caller is gone; the work is finished anyway
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()


def _refuse(error: FleetError) -> int:
    document = {"code": error.code, "message": error.message, "data": error.data()}
    _print_reply(MigrationReply(error=document))
    return error.exit_status
