"""Ids: find records by whole or shortened ids, and make new ones."""

import re

import msgspec

from ...protocol.errors import InvalidParams, NotFound
from ...protocol.types import ID_PREFIXES
from .context import Context
from .tx import Row, Tx

# The table of each noun; table names come from here only, never from a request.
TABLES = {
    "mission": "missions",
    "sortie": "sorties",
    "checkpoint": "checkpoints",
    "snapshot": "snapshots",
    "lock": "locks",
    "message": "messages",
    "agent": "agents",
    "recovery": "recoveries",
    "note": "notes",
    "handoff": "handoffs",
}
_SHORT = re.compile(r"[a-z]{2,4}-[0-9a-f]{4,}\Z")
_TOO_SHORT = re.compile(r"[a-z]{2,4}-[0-9a-f]{1,3}\Z")


def fresh_id(tx: Tx, ctx: Context, noun: str) -> str:
    """Return an id that no record of this noun has."""
    table = TABLES[noun]
    while True:
        candidate = ctx.new_id(ID_PREFIXES[noun])
        if not tx.exists(f"SELECT 1 AS taken FROM {table} WHERE id = :id", id=candidate):
            return candidate


def find(tx: Tx, noun: str, record_id: str) -> Row:
    """Return the row with this id, or with an id that starts with it.

    A prefix needs four hex digits or more and must be unique. Raises NotFound, or InvalidParams
    when several records match.
    """
    table = TABLES[noun]
    row = tx.one(f"SELECT * FROM {table} WHERE id = :id", id=record_id)
    if row is not None:
        return row
    if noun in ID_PREFIXES and _SHORT.match(record_id):
        return _find_by_prefix(tx, noun, record_id)
    raise missing(noun, record_id)


def resolve_id(tx: Tx, ctx: Context, noun: str, record_id: str) -> str:
    """Return the id of the record that ``find`` finds."""
    return str(find(tx, noun, record_id)["id"])


def _find_by_prefix(tx: Tx, noun: str, prefix: str) -> Row:
    rows = tx.all(
        # "g" follows the last hex digit, so this is a range over the index of the ids.
        f"SELECT * FROM {TABLES[noun]} WHERE id >= :low AND id < :high LIMIT 3",
        low=prefix,
        high=prefix + "g",
    )
    if len(rows) > 1:
        names = ", ".join(row["id"] for row in rows[:2])
        raise InvalidParams(
            f"The {noun} id {prefix} is ambiguous: it matches {names}.",
            hint="Give more digits of the id.",
            field=f"{noun}_id",
        )
    if not rows:
        raise missing(noun, prefix)
    return rows[0]


def missing(noun: str, record_id: str) -> NotFound:
    """Return the error for an id that does not exist."""
    lists = {
        "checkpoint": "checkpoint list",
        "snapshot": "snapshot list",
        "message": "mail list",
        "recovery": "call recovery.list",
        "handoff": "agent list",
    }.get(noun, f"{noun} list")
    hint = f"fleetctl {lists} shows the existing ones."
    if noun in ID_PREFIXES and _TOO_SHORT.match(record_id):
        hint = f"An id may be shortened to at least four digits. {hint}"
    return NotFound(
        f"{noun.capitalize()} not found: {record_id}",
        hint=hint,
        noun=noun,
        id=record_id,
    )


class Key(msgspec.Struct, frozen=True):
    """The name of a window: its harness, the harness's own session id, the subagent in it."""

    harness: str
    session_id: str
    subagent: str = ""

    @property
    def params(self) -> Row:
        """Return the values of the primary key's columns."""
        return {
            "harness": self.harness,
            "session": self.session_id,
            "subagent": self.subagent,
        }


WHERE_KEY = "harness = :harness AND session_id = :session AND subagent = :subagent"
