"""The valid answers of a lock with leases and tokens, and a search for an order that explains them.

Times of the daemon are ms of its wall clock; ``called`` and ``answered`` are the same clock as seen
by the client. Must not know processes or the wire.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

# In a fleet a change may be committed this many ms after its timestamp.
LATE_MS = 10_000
Act = Literal["grant", "regrant", "renew", "held", "end", "refused", "valid", "invalid", "touch"]


@dataclass(frozen=True)
class Op:
    """An operation on a lock, or an observation of it.

    ``at`` is when the daemon did it, if its answer contains that; the clocks of a fleet's daemons
    agree up to ``slack`` ms, and they stamp operations before their turn. A single daemon has no
    ``slack``. An optional operation may have happened or not: no client got an answer.
    """

    act: Act
    agent: str
    called: float
    answered: float = math.inf
    at: int | None = None
    lock_id: str = ""
    token: int = 0
    length: int = 0
    until: int = 0
    needs_lease: bool = True
    optional: bool = False
    slack: int = 0

    @property
    def span(self) -> tuple[int, float]:
        """Return when the daemon can have done it; the daemon counts whole ms."""
        if self.at is not None:
            waited = min(self.answered, self.at + LATE_MS) if self.slack else 0
            return self.at - self.slack, max(self.at, waited) + self.slack
        return math.floor(self.called) - self.slack, self.answered + self.slack


@dataclass(frozen=True)
class HeldLock:
    """A lock in the model: free without id. The lease ends between ``least`` and ``most``."""

    lock_id: str = ""
    token: int = 0
    agent: str = ""
    length: int = 0
    least: float = 0
    most: float = 0
    now: float = 0
    highest: int = 0


def after(held: HeldLock, op: Op) -> list[HeldLock]:
    """Return the possible states of a lock after an operation; none when it is impossible."""
    first, last = op.span
    rule = _RULES[op.act]
    if _has_any_time(held, op):
        return [replace(each, now=held.now) for each in rule(replace(held, now=first), op, last)]
    now = max(held.now, first)
    return rule(replace(held, now=now), op, last) if now <= last else []


def _has_any_time(held: HeldLock, op: Op) -> bool:
    """Return whether an operation is ordered by what it saw, not by its time.

    A read may be stamped later than a change that comes after it. In a fleet, the same is true of
    a refused call, and of calls by agents that do not hold this lock: both are stamped before
    their turn. A single daemon stamps them in their turn.
    """
    if op.act in ("valid", "invalid"):
        return True
    stranger = op.act == "touch" and held.agent != op.agent
    return op.slack > 0 and (stranger or op.act in ("held", "refused"))


def _living(held: HeldLock) -> list[HeldLock]:
    if not held.lock_id or held.most <= held.now:
        return []
    return [replace(held, least=max(held.least, held.now + 1))]


def _ended(held: HeldLock, last: float) -> list[HeldLock]:
    """Let the lease expire, now or by the time when the operation must be over."""
    now = max(held.now, held.least) if held.lock_id else held.now
    return [_free(held, now)] if now <= last else []


def _lease(held: HeldLock, op: Op, length: int, last: float) -> tuple[float, float]:
    """Return the earliest and the latest end of a lease that an operation begins."""
    if op.at is None:
        return held.now + length, last + length
    return op.at - op.slack + length, op.at + op.slack + length


def _free(held: HeldLock, now: float) -> HeldLock:
    return HeldLock(now=now, highest=held.highest)


def _grant(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    if op.token <= held.highest:
        return []
    most = max(op.until, (last if op.at is None else op.at) + op.length)
    least = min(held.now + op.length, most)
    return [
        HeldLock(op.lock_id, op.token, op.agent, op.length, least, most, free.now, op.token)
        for free in _ended(held, last)
    ]


def _regrant(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    """Regrant a lock in a recovery: to its holder, or if it is free."""
    if held.agent == op.agent:
        held = _free(held, held.now)
    return _grant(held, op, last)


def _renew(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    until, most = _lease(held, op, op.length, last)
    mine = held.lock_id == op.lock_id and held.agent == op.agent
    living = _living(held) if mine else []
    return [replace(each, least=until, most=most, length=op.length) for each in living]


def _held(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    """Check an answer that names the holder and the end of the lease."""
    if held.lock_id != op.lock_id or held.token != op.token or held.agent == op.agent:
        return []
    if not held.least <= op.until <= held.most:
        return []
    return _living(replace(held, least=op.until, most=op.until))


def _end(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    # An expired lock remains the last one until the next request for the file: it can be removed.
    if not held.lock_id and held.highest == op.token and not op.needs_lease:
        return [held]
    if held.lock_id != op.lock_id:
        return []
    living = _living(held) if op.needs_lease else [held]
    return [_free(each, each.now) for each in living]


def _refused(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    if held.lock_id != op.lock_id:
        return [held]
    return _invalid(held, op, last) if _has_any_time(held, op) else _ended(held, last)


def _valid(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    return _living(held) if held.token == op.token else []


def _invalid(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    if held.token != op.token or not held.lock_id:
        return [held]
    # The row stays until the next request for the file: the expired lock is still the last one.
    return [replace(held, most=min(held.most, last))] if held.least <= last else []


def _touch(held: HeldLock, op: Op, last: float) -> list[HeldLock]:
    """Extend the lease by an action of the holder, unless it expired before."""
    if held.agent != op.agent:
        return [held]
    until, latest = _lease(held, op, held.length, last)
    longer = [
        replace(each, least=max(each.least, until), most=max(held.most, latest))
        for each in _living(held)
    ]
    # The action may also have come after the end of the lease.
    late = max(held.now, held.least)
    over = [replace(held, most=min(held.most, last), now=late)] if late <= last else []
    return [*longer, *over]


_RULES = {
    "grant": _grant,
    "regrant": _regrant,
    "renew": _renew,
    "held": _held,
    "end": _end,
    "refused": _refused,
    "valid": _valid,
    "invalid": _invalid,
    "touch": _touch,
}


def unexplained(ops: Sequence[Op]) -> Op | None:
    """Return None when there is an order of the operations that explains every answer.

    Otherwise return the first operation, by the time of its answer, that no order reaches. An order
    may put one before another only if it was not called after the other had been answered.
    """
    ops = sorted(ops, key=lambda op: (op.called, op.span))
    required = sum(1 << number for number, op in enumerate(ops) if not op.optional)
    waiting, reached = [(0, HeldLock())], 0
    seen: dict[Any, list[tuple[int, HeldLock]]] = {}
    while waiting:
        done, held = waiting.pop()
        if done & required == required:
            return None
        reached |= done
        for number in _next(ops, done):
            for then in after(held, ops[number]):
                if ops[number].optional and then == replace(held, now=then.now):
                    continue  # whether it happened or not makes no difference
                found = (done | 1 << number, then)
                if _is_new(found, seen, required):
                    waiting.append(found)
    missed = [op for n, op in enumerate(ops) if not op.optional and not reached >> n & 1]
    return min(missed, key=lambda op: op.answered, default=ops[-1])


def _is_new(
    found: tuple[int, HeldLock], seen: dict[Any, list[tuple[int, HeldLock]]], required: int
) -> bool:
    """Return whether a state is new: neither seen, nor dominated by a seen state.

    A state dominates another if it knows less about the end of the lease, is earlier, and has more
    optional operations left: no rule forbids it anything that it allows the other.
    """
    done, held = found
    key = (done & required, held.lock_id, held.token, held.agent, held.length, held.highest)
    alike = seen.setdefault(key, [])
    if any(
        done | before == done
        and one.least <= held.least
        and one.most >= held.most
        and one.now <= held.now
        for before, one in alike
    ):
        return False
    alike.append(found)
    return True


def _next(ops: Sequence[Op], done: int) -> list[int]:
    """Return the operations that may come next, the likeliest last."""
    open_ops = [number for number in range(len(ops)) if not done >> number & 1]
    bound = min((ops[n].answered for n in open_ops if not ops[n].optional), default=math.inf)
    able = [number for number in open_ops if ops[number].called <= bound]
    return sorted(able, key=lambda n: (ops[n].optional, ops[n].span[1]), reverse=True)
