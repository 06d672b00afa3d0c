"""Recovery repeated, concurrent, and killed: the same end state, one ``fleet_recovered`` each.

A round has two identical missions. One is recovered once and undisturbed; the other several times,
by several clients, or by a daemon that is killed. Then both must have the same state.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetctl.client import Fleet
from fleetd.protocol.errors import FleetError, Unavailable
from tests.chaos.campaign import Campaign, Run
from tests.chaos.twins import AGENTS, Twin
from tests.chaos.view import check
from tests.support.processes import Daemon

RIVALS = 4
KILLS = 3


def campaign(run: Run) -> None:
    """Recover one mission after the other, in each way in turn."""
    with run.home() as (home, env):
        daemon = Daemon(home / "run" / "d.sock", home / "daemon.log", env=env)
        if run.planted is not None:
            code = f"from tests.chaos.injected_bugs import serve; serve({run.planted!r})"
            daemon.command = (sys.executable, "-c", code)
        try:
            daemon.start()
            for number in run.rounds():
                pair = _Round(run, daemon, home / "project", number)
                try:
                    pair.run()
                finally:
                    pair.close()
            daemon.stop()
        finally:
            daemon.clean_up()


class _Round:
    """Two twins, and one way of recovering the second."""

    def __init__(self, run: Run, daemon: Daemon, project: Path, number: int) -> None:
        self._run, self._daemon, self._chance = run, daemon, run.chance
        story = f"{run.seed}/{number}"
        with self._client() as client:
            self._peaceful = Twin(client, f"a{number}", project, story)
            self._troubled = Twin(client, f"b{number}", project, story)
        self._twins = (self._peaceful, self._troubled)
        self._wish = self._drawn()
        self._way = self._killed if number % 2 else self._at_once

    def close(self) -> None:
        """End the agents of both twins."""
        for twin in self._twins:
            twin.close()

    def run(self) -> None:
        """Recover both, and compare them."""
        with self._client() as client:
            self._peaceful.reconnect(client)
            begun = self._peaceful.state()
            once = self._recover(client, self._peaceful, "once")
        times = self._way()
        with self._client() as client:
            for twin in self._twins:
                twin.reconnect(client)
            self._compare("after the recovery")
            self._check_told(self._troubled, times)
            self._check_tokens(client)
            self._read_mail()
            self._compare("after everybody has read the mail")
            self._undo(client, once, begun)
        self._run.add("recoveries", times + 1)

    def _drawn(self) -> Callable[[Twin], dict[str, Any]]:
        """Choose what to recover, as a function that fits every twin."""
        chance = self._chance
        named, rewind, force = (chance.random() < part for part in (0.5, 0.4, 0.5))
        who = chance.choice([None, "take over", "agent"])

        def wish(twin: Twin) -> dict[str, Any]:
            found: dict[str, Any] = {"rewind": rewind, "force_locks": force and who != "agent"}
            found |= {"checkpoint_id": twin.checkpoint} if named else {"mission_id": twin.mission}
            if who == "take over":
                found |= {"agent_id": twin.agent("two"), "take_over_from": twin.agent("one")}
            elif who == "agent":
                found |= {"agent_id": twin.agent("two"), "scope": "agent"}
            return found

        return wish

    def _client(self) -> Fleet:
        return Fleet(self._daemon.socket)

    def _recover(self, client: Fleet, twin: Twin, key: str) -> dict[str, Any]:
        said = {**self._wish(twin), "idempotency_key": f"{twin.name} {key}"}
        told: dict[str, Any] = client.call_raw("recovery.restore", said)
        return told

    # The ways

    def _at_once(self) -> int:
        """Recover concurrently under two keys, by several clients each, and then once more."""
        keys = ("one", "other") * (RIVALS // 2)
        told = self._rivals(list(keys))
        check(len({each["recovery_id"] for each in told}) == 2, "two keys, not two recoveries")
        with self._client() as client:
            again = self._recover(client, self._troubled, "one")
            check(again["recovery_id"] in {each["recovery_id"] for each in told}, "done again")
            self._recover(client, self._troubled, "later")
        return 3

    def _rivals(self, keys: list[str]) -> list[dict[str, Any]]:
        """Let several clients recover concurrently, while others do dry runs."""
        together = threading.Barrier(len(keys) + 1)
        told: list[dict[str, Any]] = []
        errors: list[Exception] = []

        def recover(key: str | None) -> None:
            with self._client() as client:
                together.wait(20)
                try:
                    if key is None:
                        said = {**self._wish(self._troubled), "dry_run": True}
                        client.call_raw("recovery.restore", said)
                    else:
                        told.append(self._recover(client, self._troubled, key))
                except FleetError as error:
                    errors.append(error)

        threads = [threading.Thread(target=recover, args=(key,)) for key in (*keys, None)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        check(not errors, f"refused: {errors}")
        return told

    def _killed(self) -> int:
        """Kill it while it recovers, restart it, and retry under the same key, several times."""
        for _ in range(KILLS if self._run.judged or self._run.planted else 1):
            asking = threading.Thread(target=self._ask_in_vain)
            asking.start()
            time.sleep(self._chance.choice((0.0, 0.002, 0.006, 0.015, 0.03)))
            self._daemon.kill()
            asking.join(60)
            self._daemon.start()
            self._run.add("kills")
        with self._client() as client:
            self._recover(client, self._troubled, "killed")
        return 1

    def _ask_in_vain(self) -> None:
        try:
            with self._client() as client:
                self._recover(client, self._troubled, "killed")
        except (Unavailable, OSError):
            return

    # Checks

    def _compare(self, when: str) -> None:
        one, other = self._peaceful.state(), self._troubled.state()
        way = self._way.__name__.strip("_")
        for what, peaceful in one.items():
            same = peaceful == other[what]
            check(same, f"{what} differ {when} ({way}): {peaceful} and {other[what]}")

    def _check_told(self, twin: Twin, times: int) -> None:
        told = sum(event["type"] == "fleet_recovered" for event in twin.events())
        check(told == times, f"{told} fleet_recovered of {times} recoveries")

    def _check_tokens(self, client: Fleet) -> None:
        """Check that each lock is valid with its own token, and with no older one."""
        held = {lock["normalized_path"]: lock for lock in self._troubled.locks(active=True)}
        check(len(held) == len(self._troubled.locks(active=True)), "a file has two holders")
        for lock in self._troubled.locks(active=False):
            path, token = lock["normalized_path"], lock["fencing_token"]
            guards = path in held and held[path]["fencing_token"] == token
            said = {"file": path, "fencing_token": token}
            valid = client.call_raw("lock.check", said)["valid"]
            check(valid == guards, f"token {token} of {path}: {valid} instead of {guards}")
            newest = path not in held or held[path]["fencing_token"] >= token
            check(newest, f"{path} is held with an old token")

    def _read_mail(self) -> None:
        """Let every agent read its messages, each with two clients at once."""
        for twin in self._twins:
            readers = [twin.agent(name) for name in AGENTS if name != "one"] * 2
            threads = [threading.Thread(target=self._read, args=(reader,)) for reader in readers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            often = twin.delivered_too_often()
            check(not often, f"delivered twice: {often}")

    def _read(self, agent: str) -> None:
        with self._client() as client:
            client.call_raw("message.inbox", {"agent_id": agent})

    def _undo(self, client: Fleet, once: dict[str, Any], begun: dict[str, Any]) -> None:
        """Check that the recovery can be undone: the sorties are as before."""
        undo = once["undo_checkpoint_id"]
        if undo is None:
            return
        client.call_raw("recovery.restore", {"checkpoint_id": undo, "rewind": True})
        now = self._peaceful.state()["sorties"]
        check(now == begun["sorties"], f"undone, the sorties are {now}, not {begun['sorties']}")


CAMPAIGN = Campaign(
    name="recoveries",
    what="recovers twins: one in peace, one twice, at once, or by a daemon that is killed",
    unit="pairs of missions",
    run=campaign,
    short=2,
    long=1_000,
    planted={"no-key": 1, "told-twice": 1, "told-in-another-transaction": 10},
)
