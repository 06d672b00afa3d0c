"""The keys of locks: what makes two requests mean the same file; must not look at any file.

Source: behaviour, Locks. A key is a path, which is a file of one machine, or ``project:``, a
project's name and a path inside it. In a shared store what other machines could mean by something
else begins with ``machine:`` and whose it is.
"""

import re

import msgspec

from ...protocol.records import Lock
from ..core.context import Context
from ..core.tx import Row

_MACHINE = re.compile(r"\Amachine:([^:/]+):")
_PROJECT = re.compile(r"project:/?[^:]+:.+")
# A part of a path that means another path.
_DETOUR = re.compile(r"(^|[/:])\.{0,2}($|[/:])")


def of_machine(machine: str, key: str) -> str:
    """Return a key that means nothing on other machines, if there are any."""
    return f"machine:{machine}:{key}" if machine else key


def is_key(text: str) -> bool:
    """Whether a text that is no absolute path is the key of a lock."""
    return text.startswith(("project:", "machine:"))


def may_be_asked_for(machine: str, key: str) -> bool:
    """Whether a key is one that a request on this machine can mean, spelled as it is stored."""
    owner, rest = whose(key)
    if owner != (machine if key.startswith("machine:") else ""):
        return False
    known = bool(_PROJECT.fullmatch(rest)) or (bool(owner) and rest.startswith("/"))
    bare = rest.removeprefix("project:").removeprefix("/")
    return known and not _DETOUR.search(bare)


def whose(key: str) -> tuple[str, str]:
    """Return the machine that a key belongs to, empty for none, and the rest of it."""
    found = _MACHINE.match(key)
    return (found[1], key[found.end() :]) if found else ("", key)


def of_lock(lock: Lock) -> str:
    """Return the key of a lock in a checkpoint."""
    return lock.normalized_path or lock.file


def by_project(ctx: Context, mission: Row) -> bool:
    """Whether a mission's locks are on its project's files, not on those of one machine.

    They are where several machines share the store, unless it says ``lock_scope: machine``; else
    only where it says ``project``.
    """
    scope = msgspec.json.decode(mission["metadata_json"]).get("lock_scope")
    return bool(scope != "machine" if ctx.shared else scope == "project")
