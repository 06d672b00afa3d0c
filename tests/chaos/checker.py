"""Compares the replies to users with what a daemon returns later; must not change anything.

``CrewChecker.look`` runs before requests in flight are sent again, when they may be done or not.
``CrewChecker.settle`` sends them again. Then everything must be as acknowledged, done exactly once.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from fleetd.protocol.errors import NotFound
from tests.chaos.view import OVER, DaemonView, ShownLog, check, check_files, wait_until
from tests.chaos.work import Crew
from tests.chaos.worker import CrewWorker, Said

# The fields of each kind that a reply contains and that must not change afterwards.
FIELDS = {
    "mission": ("title", "description", "status", "priority", "metadata", "project_dir"),
    "sortie": (
        *("title", "status", "assigned_to", "files", "progress", "progress_notes", "position"),
        *("blocked_reason", "result", "started_at", "completed_at"),
    ),
    "agent": ("role", "note", "registered_at"),
    "lock": ("normalized_path", "held_by", "fencing_token", "purpose", "status", "acquired_at"),
    "message": ("to", "subject", "body", "sent_at"),
}
RANK = {"queued": 0, "delivered": 1, "acked": 2}
# How many of a worker's newest checkpoints and snapshots are read completely each time.
READ = 3
ENDS = ("mission.delete", "system.forget")
# fleetd credits these to the agent in whose process the client runs: here to the session of the
# latest hook. They are forgotten with that session, whichever client requested them.
CREDITED = ("mission_created", "mission_updated", "sortie_created")


class CrewChecker:
    """Inspects a daemon after each disturbance, and remembers the log.

    ``patience_s`` is how long it waits for background work.
    """

    def __init__(self, crew: Crew, home: Path, *, patience_s: float = 20.0) -> None:
        self._patience_s = patience_s
        self._crew = crew
        self._pruned: set[str | None] = set()
        self._checkpoints = home / "flightline" / "checkpoints"
        self.log = ShownLog()

    def excuse(self, mission: str) -> None:
        """Stop expecting the checkpoints of a mission: another client has pruned it."""
        self._pruned.add(mission)

    def look(self, client: Fleet) -> None:
        """Check that nothing acknowledged is lost, whatever happened to requests in flight."""
        for said in filter(None, (worker.open for worker in self._crew.workers)):
            if said.method == "checkpoint.prune":
                self._pruned.add(said.mission)
        self._compare_log(client)
        view = DaemonView(client)
        view.check_whole(self.log)
        view.check_checkpoints(self.log, self._ended("kept"), self._pruned)
        self._check_done_once()
        for worker in self._crew.workers:
            _Comparison(worker, view, client, self.log).check()

    def settle(self, client: Fleet) -> int:
        """Send requests in flight again; check that all was done once and all copies agree.

        Returns how many requests were sent again.
        """
        retried = self._crew.again()

        def taken() -> bool:
            return not client.call_raw("hook.status")["spool"]["files"]

        wait_until(taken, "hook payloads stay in the spool", self._patience_s)
        self.look(client)
        check_files(
            client, self._checkpoints, lambda: set(DaemonView(client).kept), self._patience_s
        )
        return retried

    def _ended(self, kind: str) -> set[str]:
        workers = self._crew.workers
        return {
            name
            for worker in workers
            for what, name in (*worker.gone, *worker.maybe_gone)
            if what == kind
        }

    def _compare_log(self, client: Fleet) -> None:
        """Read the new part of the log, and compare it with the live notifications about it."""
        position = self.log.position
        new = self.log.read(client)
        said = [said for worker in self._crew.workers for said in worker.said]
        if not any(each.method in ENDS for each in said):
            seqs = [event["seq"] for event in new]
            wanted = list(range(position + 1, position + 1 + len(new)))
            check(seqs == wanted, "the log has gaps, and nothing was deleted")
        forgotten = self._ended("mission") | self._ended("session")
        for seq, told in self._crew.follower.told.items():
            event = self.log.events.get(seq)
            if event is None:
                check(forgotten, f"event {seq} was told and is lost: {told}")
            else:
                same = (event["type"], event["data"]) == (told["type"], told["data"])
                check(same, f"event {seq} was told as {told} and is {event}")
        self._crew.follower.told.clear()

    def _check_done_once(self) -> None:
        """Check that the log contains each acknowledged change exactly once."""
        done: Counter[tuple[str, str]] = Counter()
        perhaps: Counter[tuple[str, str]] = Counter()
        sessions = self._ended("session")
        ended = self._ended("mission") | sessions
        for worker in self._crew.workers:
            for said in worker.said:
                if said.shows is not None and not said.refused:
                    doubtful = said.open or said.mission in ended
                    doubtful |= bool(sessions) and said.shows[0] in CREDITED
                    (perhaps if doubtful else done)[said.shows] += 1
        for shows in done | perhaps:
            if shows[1] in ended:
                continue
            seen = self.log.words[shows]
            fits = done[shows] <= seen <= done[shows] + perhaps[shows]
            check(fits, f"{shows} is in the log {seen} times, acknowledged {done[shows]} times")


class _Comparison:
    """Compares one worker's records with the fleet."""

    def __init__(self, worker: CrewWorker, view: DaemonView, client: Fleet, log: ShownLog) -> None:
        self._worker, self._view, self._client, self._log = worker, view, client, log
        self._there: dict[str, dict[str, Any]] = {
            "mission": view.missions,
            "sortie": view.sorties,
            "agent": view.agents,
            "lock": view.locks,
            "message": view.messages,
            "kept": view.kept,
            "recovery": view.recoveries,
        }

    def check(self) -> None:
        """Check everything that the worker was told."""
        in_flight: Said | None = self._worker.open
        touched = in_flight.touches if in_flight else frozenset()
        for (kind, name), fact in self._worker.facts.items():
            mission = fact.get("mission_id")
            doubtful = {name, mission, fact.get("normalized_path"), fact.get("key")} & touched
            lost = ("mission", mission) in self._worker.maybe_gone
            if kind in self._there and not doubtful and not lost:
                self._check_one(kind, name, fact)
        for kind, name in self._worker.gone:
            back = name in self._there.get(kind, {})
            check(not back, f"{kind} {name} was deleted and is back")
        self._check_letters(touched)
        self._check_cursor(touched)
        self._check_content()

    def _check_one(self, kind: str, name: str, fact: dict[str, Any]) -> None:
        one = self._there[kind].get(name)
        if one is None:
            over = kind == "kept" and self._over(fact)
            gone = (kind, name) in self._worker.maybe_gone or over
            gone = gone or bool(self._log.words[("checkpoint_deleted", name)])
            check(gone, f"{self._worker.name} was told of {kind} {name}, which is lost: {fact}")
            return
        for field in FIELDS.get(kind, ()):
            same = one[field] == fact[field]
            check(same, f"{kind} {name}: {field} was {fact[field]!r}, is {one[field]!r}")
        if kind == "lock":
            check(one["expires_at"] >= fact["expires_at"], f"the lease of {name} became shorter")

    def _over(self, fact: dict[str, Any]) -> bool:
        """Return whether its mission is or was over: fleetd prunes checkpoints of such missions."""
        return any(self._log.words[each, str(fact.get("mission_id"))] for each in OVER)

    def _check_letters(self, touched: frozenset[str]) -> None:
        for letter in self._worker.own("letter"):
            message = self._view.messages.get(letter["id"])
            requeued = self._log.words[("message_requeued", letter["id"])]
            if message is None or requeued or f"{letter['id']} {letter['agent']}" in touched:
                continue
            (status,) = [
                each["status"]
                for each in message["deliveries"]
                if each["agent_id"] == letter["agent"]
            ]
            text = f"{letter} was {letter['status']}, is {status}"
            check(RANK[status] >= RANK[letter["status"]], text)

    def _check_cursor(self, touched: frozenset[str]) -> None:
        for cursor in self._worker.own("cursor"):
            if cursor["id"] not in touched:
                said = {"consumer": cursor["id"], "stream": "fleet"}
                position = self._client.call_raw("cursor.get", said)["position"]
                check(position >= cursor["position"], f"{cursor['id']} went back to {position}")

    def _check_content(self) -> None:
        """Read the newest checkpoints and snapshots completely."""
        for kept in self._worker.own("kept")[-READ:]:
            if kept["id"] in self._view.kept and "integrity" in kept and not self._over(kept):
                self._same("checkpoint.get", {"checkpoint_id": kept["id"]}, kept)
        for snapshot in self._worker.own("snapshot")[-READ:]:
            self._same("snapshot.get", {"snapshot_id": snapshot["id"]}, snapshot)

    def _same(self, method: str, params: dict[str, Any], fact: dict[str, Any]) -> None:
        try:
            one = self._client.call_raw(method, params)
        except NotFound as error:
            raise AssertionError(f"acknowledged and lost: {params}") from error
        check(one["integrity"] == fact["integrity"], f"{params} holds something else now")
