"""Converts the diaries of clients and the daemon's list of locks to operations on each lock."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from fleetd.protocol.timestamps import to_ms
from tests.chaos.campaign import Red
from tests.chaos.lock_clients import LockCall
from tests.chaos.lock_model import Op

Rows = dict[str, dict[str, Any]]


class LockHistory:
    """Operations by the file's key; raises Red for an impossible sequence.

    ``slack_ms`` is by how much the clocks of the daemons may differ.
    """

    def __init__(
        self, calls: Iterable[LockCall], locks: list[dict[str, Any]], *, slack_ms: int = 0
    ) -> None:
        self._slack = slack_ms
        self.calls = sorted(calls, key=lambda call: call.called)
        self.rows: Rows = {lock["id"]: lock for lock in locks}
        self.keys = {lock["normalized_path"] for lock in locks}
        self.ops: dict[str, list[Op]] = defaultdict(list)
        self._granted: set[str] = set()
        self._ended: set[str] = set()
        for call in self.calls:
            _TOLD[call.method](self, call)
        for row in self.rows.values():
            self._explain(row)

    # Answered calls

    def _acquired(self, call: LockCall) -> None:
        lock = call.result
        if call.error == "lock_conflict":
            self._conflict(call, lock)
        elif call.error is None and lock is not None:
            known = lock["id"] in self._granted or _ms(lock["acquired_at"]) < int(call.called) - 1
            if not known:
                self._granted.add(lock["id"])
            key, length, until = (
                lock["normalized_path"],
                lock["timeout_ms"],
                _ms(lock["expires_at"]),
            )
            at = until - length if known else _ms(lock["acquired_at"])
            self._add(key, call, "renew" if known else "grant", lock, at, until=until)
            self._touch(call, at, but=key)
            if call.request.get("wait_ms"):
                self._asked_again(key, call, lock, until - length)
        else:
            self._touch(call, None)

    def _asked_again(self, key: str, call: LockCall, lock: dict[str, Any], at: int) -> None:
        """Allow a renewal: a waiting call may be sent again after its grant.

        The first attempt may also have found a lock of its agent that has ended since.
        """
        renewed = {"lock_id": lock["id"], "token": lock["fencing_token"], "slack": self._slack}
        self.ops[key].append(
            Op(
                "renew",
                call.agent,
                call.called,
                call.answered or 0.0,
                at,
                length=lock["timeout_ms"],
                optional=True,
                **renewed,
            )
        )
        self._touch(call, None)

    def _conflict(self, call: LockCall, held: dict[str, Any] | None) -> None:
        if held is not None:
            self._add(held["normalized_path"], call, "held", held, until=_ms(held["expires_at"]))
        if call.request.get("wait_ms"):  # a wait without success is reported as an error
            self._touch(call, None)

    def _checked(self, call: LockCall) -> None:
        if call.result is not None:
            lock = {"fencing_token": call.request["fencing_token"]}
            row = self._row_of_token(lock["fencing_token"])
            act = "valid" if call.result["valid"] else "invalid"
            self._add(row["normalized_path"], call, act, lock)

    def _renewed(self, call: LockCall) -> None:
        row = self.rows[call.request["lock_id"]]
        if call.error is not None:
            self._add(row["normalized_path"], call, "refused", row)
        elif call.result is not None:
            at = _ms(call.result["expires_at"]) - call.result["timeout_ms"]
            self._add(row["normalized_path"], call, "renew", call.result, at)
            self._touch(call, at, but=row["normalized_path"])
        else:
            self._touch(call, None)

    def _released(self, call: LockCall) -> None:
        row = self.rows[call.request["lock_id"]]
        if call.error is not None:
            self._add(row["normalized_path"], call, "refused", row)
        elif call.result is not None:
            at, forced = _ms(call.result["released_at"]), call.method == "lock.force_release"
            self._ended.add(row["id"])
            self._add(row["normalized_path"], call, "end", row, at, needs_lease=not forced)
            self._touch(call, at, but=row["normalized_path"])
        else:
            self._touch(call, None)

    def _appended(self, call: LockCall) -> None:
        told = call.result or {}
        self._touch(call, _ms(told["timestamp"]) if "timestamp" in told else None)

    def _other(self, call: LockCall) -> None:
        self._touch(call, None)

    # Changes without an answer

    def _explain(self, row: dict[str, Any]) -> None:
        """Find agents that may have been granted a lock, or lost it, without an answer."""
        key, agent, begun = row["normalized_path"], row["held_by"], _ms(row["acquired_at"])
        if row["id"] not in self._granted:
            asked = self._unanswered(begun, "lock.acquire", agent)
            if not (asked or self._recovering(begun)):
                told = [call for call in self.calls if begun - 2_000 < call.called < begun + 2_000]
                lines = "\n    ".join(str(call) for call in told if row["id"] in str(call))
                raise Red(f"{agent} was granted what nobody had asked for: {row}\n    {lines}")
            act = "grant" if asked else "regrant"
            self._silent(key, row, act, begun)
        if row["status"] in ("released", "forced") and row["id"] not in self._ended:
            ended = _ms(row["released_at"])
            by_recovery = self._recovering(ended)
            if not (by_recovery or self._unanswered(ended, "lock.")):
                raise Red(f"{row['id']} of {agent} was {row['status']} and nobody had asked for it")
            self._silent(key, row, "end", ended)

    def _unanswered(self, at: int, method: str, agent: str | None = None) -> bool:
        """Return whether a call without an answer may have done it.

        A waiting call is more than one transaction: when the daemon was killed between them, it was
        sent again, and its answer reports the second time only.
        """
        return any(
            call.answered is None or (call.request.get("wait_ms") and at <= call.answered + 1)
            for call in self.calls
            if call.method.startswith(method)
            and agent in (None, call.agent)
            and call.called <= at + 1
        )

    def _recovering(self, at: int) -> bool:
        return any(
            call.called - 1 <= at <= (call.answered or at) + 1
            for call in self.calls
            if call.method == "recovery.restore"
        )

    # Operations

    def _silent(self, key: str, row: dict[str, Any], act: Any, at: int) -> None:
        self.ops[key].append(
            Op(
                act,
                row["held_by"],
                at - 1,
                at=at,
                lock_id=row["id"],
                token=row["fencing_token"],
                length=row["timeout_ms"],
                until=_ms(row["expires_at"]),
                needs_lease=False,
                optional=True,
                slack=self._slack,
            )
        )

    def _add(
        self,
        key: str,
        call: LockCall,
        act: Any,
        lock: dict[str, Any],
        at: int | None = None,
        **more: Any,
    ) -> None:
        answered = call.answered or 0.0
        near = 2 + self._slack
        if at is not None and not call.called - near <= at <= answered + near:
            raise Red(f"{call.method} of {call.agent} happened outside of its call: {call}")
        self.ops[key].append(
            Op(
                act,
                call.agent,
                call.called,
                answered,
                at,
                lock.get("id", ""),
                lock["fencing_token"],
                lock.get("timeout_ms", 0),
                slack=self._slack,
                **more,
            )
        )

    def _touch(self, call: LockCall, at: int | None, but: str = "") -> None:
        """Extend the leases of an agent on every file, which any of its calls does."""
        answered = float("inf") if call.answered is None else call.answered
        for key in self.keys - {but}:
            self.ops[key].append(
                Op(
                    "touch",
                    call.agent,
                    call.called,
                    answered,
                    at,
                    optional=at is None,
                    slack=self._slack,
                )
            )

    def _row_of_token(self, token: int) -> dict[str, Any]:
        return next(row for row in self.rows.values() if row["fencing_token"] == token)


_TOLD: dict[str, Any] = {
    "lock.acquire": LockHistory._acquired,
    "lock.check": LockHistory._checked,
    "lock.renew": LockHistory._renewed,
    "lock.release": LockHistory._released,
    "lock.force_release": LockHistory._released,
    "event.append": LockHistory._appended,
    "agent.register": LockHistory._other,
    "recovery.restore": LockHistory._other,
}


def _ms(timestamp: str) -> int:
    return to_ms(timestamp)


def check_rows(rows: Iterable[dict[str, Any]], *, slack_ms: int = 0) -> None:
    """Compare the grants of each file in the order of their tokens: none overlaps the next."""
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["fencing_token"]):
        by_key[row["normalized_path"]].append(row)
    for key, grants in by_key.items():
        for one, following in pairwise(grants):
            if one["fencing_token"] == following["fencing_token"]:
                raise Red(f"token {one['fencing_token']} of {key} was given twice")
            end = one["released_at"] or one["expires_at"]
            if _ms(end) > _ms(following["acquired_at"]) + slack_ms:
                raise Red(f"{key} was held twice: {one} and {following}")
