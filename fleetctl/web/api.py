"""The methods of the daemon that the page may call: none of them changes anything."""

from typing import Any
from urllib.parse import parse_qs

import msgspec

from fleetd.protocol.errors import FleetError, InvalidParams, NotFound, Unavailable

from ..client.methods import METHODS as EVERY
from ..client.retry import LONG_S, READ_S
from .raw_results import RawFleet

METHODS = frozenset(
    {
        "agent.get",
        "agent.list",
        "attention.conflicts",
        "attention.list",
        "checkpoint.compare",
        "checkpoint.get",
        "checkpoint.list",
        "event.list",
        "fleet.at",
        "lock.list",
        "message.list",
        "mission.at",
        "mission.get",
        "mission.list",
        "note.list",
        "recovery.context",
        "recovery.list",
        "report.get",
        "search.query",
        "session.list",
        "sortie.list",
        "system.hello",
        "system.status",
        "timeline.get",
        "usage.report",
    }
)
PARAMS = "params"


class Daemon:
    """The daemon for requests of the page: over one connection, and over restarts.

    A request waits for a daemon that restarts. If the daemon does not come back, each request tries
    again without waiting, until one succeeds.
    """

    def __init__(self, fleet: RawFleet) -> None:
        self.fleet = fleet
        self._away = True

    async def ask(self, method: str, params: dict[str, Any]) -> bytes:
        """Return the result of a method as JSON; raises FleetError."""
        wait_s = LONG_S if EVERY.get(method, ("", False, False))[2] else READ_S
        waits = not self._away
        try:
            result = await self.fleet.call_raw(method, params, reply_s=wait_s, again=waits)
        except FleetError as error:
            self._away = isinstance(error, Unavailable)
            raise
        self._away = False
        return bytes(result)


def method_of(name: str) -> str:
    """Return the name of a method that the page may call; raises NotFound."""
    if name not in METHODS:
        raise NotFound(
            "The page may not call this method.",
            hint="fleetctl call calls any method of the daemon.",
            method=name[:100],
        )
    return name


def params_of(query: str) -> dict[str, Any]:
    """Return the parameters in the query of an address; raises InvalidParams."""
    try:
        # A parameter that is given twice becomes a list of two values, which is refused below.
        given = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError as error:
        raise _invalid(str(error)) from error
    values = given.pop(PARAMS, ["{}"])
    if given or len(values) != 1:
        raise _invalid("the query has something else")
    try:
        return msgspec.json.decode(values[0], type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _invalid(str(error)) from error


def _invalid(why: str) -> InvalidParams:
    return InvalidParams(
        f"The parameters cannot be read: {why}.",
        hint=f"Send {PARAMS}= with one JSON object, URL-encoded.",
    )
