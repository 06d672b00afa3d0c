"""The keys of locks: what makes two requests mean the same file; must not look at any file.

Source: behaviour, Locks. A key is a path, which is a file of one machine, or ``project:``, a
project's name and a path inside it. In a shared store what other machines could mean by something
else begins with ``machine:`` and whose it is.
"""

import re

from ..wire.model import Lock
from .context import Context
from .tx import Tx

_MACHINE = re.compile(r"\Amachine:([^:/]+):")


def of_machine(machine: str, key: str) -> str:
    """Return a key that means nothing on other machines, if there are any."""
    return f"machine:{machine}:{key}" if machine else key


def is_key(text: str) -> bool:
    """Whether a text that is no absolute path is the key of a lock."""
    return text.startswith(("project:", "machine:"))


def whose(key: str) -> tuple[str, str]:
    """Return the machine that a key belongs to, empty for none, and the rest of it."""
    found = _MACHINE.match(key)
    return (found[1], key[found.end() :]) if found else ("", key)


def of_lock(tx: Tx, ctx: Context, lock: Lock, mission_id: str) -> str:
    """Return the key of a lock in a mission's checkpoint, as it is in this store.

    The checkpoint may be older than the sharing: then a path is one of the mission's machine. It
    may be of a time of sharing that is over: then what is this machine's needs no such word.
    """
    key = lock.normalized_path or lock.file
    if not ctx.shared:
        return whose(key)[1]
    if not key.startswith("/"):
        return key
    machine = tx.value("SELECT machine FROM missions WHERE id = :id", id=mission_id)
    return of_machine(machine or ctx.machine, key)
