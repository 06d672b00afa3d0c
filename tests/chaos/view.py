"""The complete visible state of a daemon, and checks of its consistency; must not know clients."""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from tests.chaos.campaign import Red

MARK = re.compile(r"~[\w.-]+~")
# The status of a sortie after each event that determines it.
AFTER = {
    "sortie_assigned": {"assigned", "in_progress", "blocked"},
    "sortie_started": {"in_progress"},
    "sortie_progressed": {"in_progress", "blocked", "assigned", "pending"},
    "sortie_blocked": {"blocked"},
    "sortie_unblocked": {"in_progress", "assigned", "pending"},
    "sortie_completed": {"completed"},
    "sortie_failed": {"failed"},
    "sortie_created": {"pending", "assigned"},
}
OVER = ("mission_completed", "mission_failed", "mission_cancelled")
MILESTONES = (25, 50, 75)


def check(holds: object, what: str) -> None:
    """Raise Red with a description of the violation, unless a condition holds."""
    if not holds:
        raise Red(what)


def wait_until(holds: Callable[[], Any], what: str, patience_s: float) -> None:
    """Poll until a condition of background work holds; raises Red on a timeout."""
    deadline = time.monotonic() + patience_s
    while not holds():
        check(time.monotonic() < deadline, what)
        time.sleep(0.02)


class ShownLog:
    """The log so far: events are remembered once they were seen."""

    def __init__(self) -> None:
        self.events: dict[int, dict[str, Any]] = {}
        self.words: Counter[tuple[str, str]] = Counter()

    @property
    def position(self) -> int:
        """The ``seq`` of the last event."""
        return max(self.events, default=0)

    def read(self, client: Fleet) -> list[dict[str, Any]]:
        """Read new events and return them."""
        new: list[dict[str, Any]] = []
        page = None
        while page is None or page:
            since = new[-1]["seq"] if new else self.position
            page = client.call_raw("event.list", {"since": since, "limit": 1_000})["events"]
            new += page
        for event in new:
            self.events[event["seq"]] = event
            self.words.update((event["type"], word) for word in _words(event))
        return new

    def of(self, *types: str) -> Iterator[dict[str, Any]]:
        """Yield the events of some types, in order."""
        return (event for event in self.events.values() if event["type"] in types)


def _words(event: dict[str, Any]) -> set[str]:
    """Return the search words of an event: marks, ids, and which agent acknowledged a message."""
    data, agent = event["data"], event["agent_id"]
    found = set(MARK.findall(str(data))) | {event["mission_id"], agent}
    found |= {data.get(name) for name in ("sortie_id", "lock_id", "message_id", "checkpoint_id")}
    found.add(f"{data.get('message_id')} {agent}")
    return {word for word in found if word}


class DaemonView:
    """The fleet in a daemon's answers, read while no client changes anything."""

    def __init__(self, client: Fleet) -> None:
        def every(method: str, what: str, **params: Any) -> dict[str, dict[str, Any]]:
            return {one["id"]: one for one in client.call_raw(method, params)[what]}

        self.missions = page = every("mission.list", "missions", limit=1_000)
        while page:  # a full-disk campaign makes more than one page
            page = every("mission.list", "missions", limit=1_000, after=list(page)[-1])
            self.missions |= page
        self.sorties = {
            one["id"]: one
            for mission in self.missions
            for one in client.call_raw("sortie.list", {"mission_id": mission})["sorties"]
        }
        self.agents = every("agent.list", "agents")
        self.locks = every("lock.list", "locks")
        self.messages = every("message.list", "messages")
        self.recoveries = every("recovery.list", "recoveries")
        self.kept = {
            one["id"]: one
            for mission in self.missions
            for one in client.call_raw("checkpoint.list", {"mission_id": mission, "limit": 1_000})[
                "checkpoints"
            ]
        }

    def check_whole(self, log: ShownLog) -> None:
        """Check that no record is incomplete."""
        for mission in self.missions.values():
            self._check_mission(mission, log)
        last = {event["data"]["sortie_id"]: event for event in log.of(*AFTER, "sortie_restored")}
        for sortie in self.sorties.values():
            self._check_sortie(sortie, last.get(sortie["id"]))
        for message in self.messages.values():
            to = {each["agent_id"] for each in message["deliveries"]}
            check(to == set(message["to"]), f"half a letter: {message}")
        taken = {event["data"]["checkpoint_id"] for event in log.of("fleet_checkpointed")}
        check(self.kept.keys() <= taken, f"no event tells of {self.kept.keys() - taken}")
        paths = Counter(lock["normalized_path"] for lock in self.locks.values())
        check(not paths or max(paths.values()) == 1, f"two holders: {paths}")

    def check_checkpoints(
        self, log: ShownLog, gone: set[str], pruned: Collection[str | None]
    ) -> None:
        """Check that every checkpoint in the log's events exists.

        ``gone`` may be deleted, and any checkpoint of the missions in ``pruned``. Of missions that
        are over, fleetd itself keeps only the final checkpoint.
        """
        over = {event["mission_id"] for event in log.of(*OVER)}
        told = {
            event["data"]["checkpoint_id"]
            for event in log.of("fleet_checkpointed")
            if event["mission_id"] in self.missions.keys() - over - set(pruned)
        }
        # Later work reopens a mission; a mission that is completed again keeps its last checkpoint.
        final = {
            event["mission_id"]: event["data"]["checkpoint_id"]
            for event in log.of("mission_completed")
        }
        told |= {
            checkpoint
            for mission, checkpoint in final.items()
            if self.missions.get(mission, {}).get("status") == "completed"
        }
        deleted = {event["data"]["checkpoint_id"] for event in log.of("checkpoint_deleted")}
        lost = told - self.kept.keys() - deleted - gone
        check(not lost, f"checkpoints that the log tells of are nowhere: {lost}")

    def _check_mission(self, mission: dict[str, Any], log: ShownLog) -> None:
        name = mission["id"]
        own = [one for one in self.sorties.values() if one["mission_id"] == name]
        done = sum(one["status"] == "completed" for one in own)
        counted = (mission["total_sorties"], mission["completed_sorties"])
        check(counted == (len(own), done), f"{name} is counted wrong: {counted}, {len(own)} {done}")
        events = [event for event in log.of("sortie_removed") if event["mission_id"] == name]
        known = {one["title"] for one in own} | {event["data"]["title"] for event in events}
        made = {f"S{n}" for n in range(mission["metadata"].get("sorties", 0))}
        check(made <= known, f"{name} has only some of its sorties: {made - known} are missing")
        passed = max(
            (mark for mark in MILESTONES if mark <= mission["progress_percent"]), default=0
        )
        reached = [
            event["data"]["progress_percent"]
            for event in log.of("fleet_checkpointed")
            if event["mission_id"] == name
        ]
        check(passed <= max(reached, default=0), f"{name} passed {passed} % without a checkpoint")

    def _check_sortie(self, sortie: dict[str, Any], event: dict[str, Any] | None) -> None:
        check(event, f"no event tells of {sortie['id']}")
        assert event is not None
        restored = {event["data"].get("status")}
        allowed = AFTER.get(event["type"], restored)
        check(sortie["status"] in allowed, f"{event['type']} was told last of {sortie}")


def check_files(
    client: Fleet, checkpoints: Path, kept: Callable[[], set[str]], patience_s: float
) -> None:
    """Check that rows and files agree as soon as pending work is done."""

    def files() -> set[str]:
        return {path.stem for path in checkpoints.glob("msn-*/chk-*.json")}

    def settled() -> bool:
        return not client.call_raw("system.status")["backup_backlog"]

    wait_until(settled, "files are not written", patience_s)
    wait_until(lambda: files() == kept(), "rows and files differ", patience_s)
    for method in ("checkpoint.verify", "snapshot.verify", "system.doctor"):
        found = client.call_raw(method)["findings"]
        bad = [each for each in found if not each["ok"] and each["check"] not in ("disk", "room")]
        check(not bad, f"{method}: {bad[:5]}")
    for link in checkpoints.glob("msn-*/latest.json"):
        newest = client.call_raw("checkpoint.latest", {"mission_id": link.parent.name})["id"]
        check(link.resolve().stem == newest, f"{link} is {link.resolve().name}, not {newest}")
    left = [str(path) for path in checkpoints.rglob(".tmp-*")]
    check(not left, f"left behind: {left}")
