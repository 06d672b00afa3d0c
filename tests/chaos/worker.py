"""A client that records what a daemon acknowledged; must not know any method.

Each worker has its own connection, random stream and records. So the last answer about a record is
its expected state.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet, TooSlow
from fleetd.protocol.errors import FleetError, Unavailable

# After these errors nothing was done, or the outcome is unknown: retry under the same key.
AGAIN = ("unavailable", "storage")


@dataclass
class Said:
    """One request and its answer: ``result`` is None while the outcome is unknown.

    ``mission`` is its mission, or the session of a hook: records forgotten with it are not lost.
    ``shows`` is the event that a request leaves in the log: its type, and a word in it.
    ``touches`` is what it may change; the checks skip that while the outcome is open.
    ``may`` are the kinds of error that are no defect here; ``then`` handles the result.
    """

    method: str
    params: dict[str, Any]
    key: str
    shows: tuple[str, str] | None = None
    touches: frozenset[str] = frozenset()
    may: tuple[str, ...] = ()
    mission: str | None = None
    then: Callable[[Any], None] = lambda _: None
    result: Any = None
    refused: str | None = None
    spooled: bool = False
    """Whether it was left in the spool, which the daemon reads by itself."""

    @property
    def open(self) -> bool:
        """Return whether it may or may not have been done."""
        return self.result is None and self.refused is None


class Gone(Exception):
    """The daemon did not answer, or could not do it now: the worker stops until it is back."""


class CrewWorker:
    """One user: sends requests and records the answers.

    ``facts`` are the last known records, by kind and id. ``gone`` are records with an acknowledged
    end, ``maybe_gone`` those with a possible end whose reply was lost. ``stale`` are missions
    that changed in more ways than the answers contain. ``place`` is where its sessions work.
    ``moment`` is called before a changing request is sent.
    """

    def __init__(self, name: str, socket: Path, home: Path, chance: random.Random) -> None:
        self.name, self.socket, self.chance = name, socket, chance
        self.home = home
        self.project, self.place = home / "project" / name, home / "sessions" / name
        for directory in (self.project, self.place):
            directory.mkdir(parents=True, exist_ok=True)
        self.said: list[Said] = []
        self.facts: dict[tuple[str, str], dict[str, Any]] = {}
        self.gone: set[tuple[str, str]] = set()
        self.maybe_gone: set[tuple[str, str]] = set()
        self.stale: set[str] = set()
        self.sent = self.answered = 0
        self.broken: BaseException | None = None
        self.moment: Callable[[], None] = lambda: None
        self._client: Fleet | None = None

    def mark(self) -> str:
        """Return a word that no request has used before."""
        return f"~{self.name}.{len(self.said)}~"

    def ask(self, method: str, params: dict[str, Any], **more: Any) -> None:
        """Send a request that changes something; ``more`` are fields of Said.

        Raises Gone when the outcome is open, and the FleetError for an unexpected refusal.
        """
        touches = frozenset(more.pop("touches", ()))
        said = Said(method, params, self.mark(), touches=touches, **more)
        self.said.append(said)
        self.moment()
        self._send(said)

    def look(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request that changes nothing; raises Gone."""
        try:
            return self._connected().call_raw(method, params)
        except (Unavailable, TooSlow, OSError) as error:
            raise self._lost(error) from error

    @property
    def open(self) -> Said | None:
        """The request with an unknown outcome; there is at most one, the last."""
        return self.said[-1] if self.said and self.said[-1].open else None

    def errand(self) -> None:
        """Do the next thing."""
        raise NotImplementedError

    def again(self) -> None:
        """Retry the request with an open outcome, under its key."""
        said = self.said[-1]
        if said.spooled:
            said.result = "taken from the spool"
        else:
            self._send(said)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, said: Said) -> None:
        try:
            client = self._connected()
            self.sent += 1
            result = client.call_raw(said.method, {**said.params, **_key(said)})
            self.answered += 1
        except (TooSlow, OSError) as error:
            raise self._lost(error) from error
        except FleetError as error:
            if error.kind in AGAIN:
                raise self._lost(error) from error
            said.refused = error.kind
            if error.kind not in said.may:
                raise
        else:
            said.result = result
            about = result.get("agent", result)
            said.mission = about.get("mission_id") or said.mission
            said.then(result)

    def _connected(self) -> Fleet:
        if self._client is None:
            self._client = Fleet(self.socket, connect_s=1.0)
        return self._client

    def _lost(self, error: Exception) -> Gone:
        self.close()
        return Gone(str(error))

    # The worker's own records

    def note(self, kind: str, record: dict[str, Any]) -> None:
        """Remember a record from an answer."""
        self.facts[(kind, record["id"])] = record

    def own(self, kind: str, **among: Collection[Any]) -> list[dict[str, Any]]:
        """Return the worker's own records whose fields have one of the given values."""
        return [
            one
            for (what, _), one in self.facts.items()
            if what == kind and all(one[name] in values for name, values in among.items())
        ]

    def pick(self, kind: str, **among: Collection[Any]) -> dict[str, Any]:
        """Return one of the worker's own records, {} if there is none."""
        found = self.own(kind, **among)
        return self.chance.choice(found) if found else {}

    def end(self, *keys: tuple[str, str]) -> None:
        """Remember that records have ended."""
        self.gone.update(keys)
        for key in keys:
            self.facts.pop(key, None)


def _key(said: Said) -> dict[str, str]:
    return {} if said.method == "hook.deliver" else {"idempotency_key": said.key}
