"""Daily rounds: the time and the result of this machine's last round of each kind.

The time is the wall clock's, which goes on while the machine sleeps and while no daemon runs.
"""

from typing import Literal

import msgspec

from ..core.context import Context
from ..core.tx import Tx

Kind = Literal["housekeeping", "verification"]


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A finished round that began at ``at_ms``, since the Unix epoch.

    For a verification: how many ``files`` were checked, how many were ``healed``, how many stay
    ``damaged``. For housekeeping: the ``settings`` that all of it used, as JSON; empty if some of
    it failed.
    """

    at_ms: int
    settings: str = ""
    files: int = 0
    healed: int = 0
    damaged: int = 0


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """The last finished round of each kind, None if there was none."""

    housekeeping: Round | None
    verification: Round | None


def rounds(tx: Tx, ctx: Context) -> Rounds:
    """Return this machine's last rounds."""
    return Rounds(
        housekeeping=_round(tx, ctx, "housekeeping"), verification=_round(tx, ctx, "verification")
    )


def _round(tx: Tx, ctx: Context, kind: Kind) -> Round | None:
    value = tx.value("SELECT value FROM store_meta WHERE key = :key", key=_key(ctx, kind))
    return None if value is None else msgspec.json.decode(value, type=Round)


def _key(ctx: Context, kind: Kind) -> str:
    return f"round:{kind}:{ctx.machine}"


def round_done(tx: Tx, ctx: Context, kind: Kind, done: Round) -> None:
    """Note that a round is finished; it replaces the one before."""
    tx.run(
        "INSERT INTO store_meta (key, value) VALUES (:key, :value)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=_key(ctx, kind),
        value=msgspec.json.encode(done).decode(),
    )
