"""Lock keys: the same for every request that means the same file, and its name for a reader.

A key is a path, which is a file of one machine, or ``project:``, a project's name and a path inside
it. In a shared store, a key that could mean another file on other machines begins with ``machine:``
and the machine's id.

``file`` in a lock's row is what its holder gave, which may mean another file to another reader. A
request accepts a name that was made from a key.
"""

import re

import msgspec
from msgspec.structs import replace

from ...host.file_system import within
from ...protocol.records import Event, Lock
from ..cluster.membership import machine_suffix
from ..core.context import Context
from ..core.tx import Row, Tx

_MACHINE = re.compile(r"\Amachine:([^:/]+):")
_PROJECT = re.compile(r"project:/?[^:]+:.+")
# A part that makes a path equivalent to another one.
_DETOUR = re.compile(r"(^|[/:])\.{0,2}($|[/:])")
# A project known by its repository's own directory: the working tree is beside that.
_BY_PLACE = re.compile(r"project:(/.*)/\.git:(.+)")


def machine_key(machine: str, key: str) -> str:
    """Return a key that is valid only on this machine, if there are others."""
    return f"machine:{machine}:{key}" if machine else key


def is_key(text: str) -> bool:
    """Return whether a text that is not an absolute path is the key of a lock."""
    return text.startswith(("project:", "machine:"))


def may_be_asked_for(machine: str, key: str) -> bool:
    """Return whether a request on this machine can mean a key, spelled as it is stored."""
    owner, rest = split_machine(key)
    if owner != (machine if key.startswith("machine:") else ""):
        return False
    known = bool(_PROJECT.fullmatch(rest)) or (bool(owner) and rest.startswith("/"))
    bare = rest.removeprefix("project:").removeprefix("/")
    return known and not _DETOUR.search(bare)


def split_machine(key: str) -> tuple[str, str]:
    """Return the machine that a key belongs to, empty for none, and the rest of it."""
    found = _MACHINE.match(key)
    return (found[1], key[found.end() :]) if found else ("", key)


def key_of_lock(lock: Lock) -> str:
    """Return the key of a lock in a checkpoint."""
    return lock.normalized_path or lock.file


def locks_by_project(ctx: Context, mission: Row) -> bool:
    """Return whether a mission's locks are on its project's files, not on one machine's files.

    In a shared store they are, unless the mission has ``lock_scope: machine``. In any other store
    they are only if it has ``lock_scope: project``.
    """
    scope = msgspec.json.decode(mission["metadata_json"]).get("lock_scope")
    return bool(scope != "machine" if ctx.shared else scope == "project")


def display_file(tx: Tx, ctx: Context, row: Row) -> str:
    """Return the name of a lock's file as seen from ``ctx.facts.here``."""
    return display_name(tx, ctx, row["normalized_path"], row["file"])


def display_event(tx: Tx, ctx: Context, event: Event) -> Event:
    """Return an event of a lock with its file named as seen from ``ctx.facts.here``."""
    lock_id = event.data.get("lock_id")
    lock = tx.one("SELECT * FROM locks WHERE id = :id", id=lock_id) if lock_id else None
    if lock is None or event.data.get("file") != lock["file"]:
        return event
    return replace(event, data={**event.data, "file": display_file(tx, ctx, lock)})


def display_name(tx: Tx, ctx: Context, key: str, given: str) -> str:
    """Return the name of a key's file as seen from ``ctx.facts.here``; its holder's is ``given``.

    It is the path inside the repository there, else a path from the home directory or the root. For
    a project without a known place, it is the key. A key of another machine has that machine's
    name too.
    """
    here = ctx.facts.here
    if here.project and key.startswith(here.project):
        return key[len(here.project) :] or "./"
    owner, rest = split_machine(key)
    if there := machine_suffix(tx, ctx, owner):
        return f"{rest}{there}"
    if placed := _BY_PLACE.fullmatch(rest):
        rest = f"{placed[1]}/{placed[2]}"
    if rest.startswith("/"):
        return _path(rest, here.root, here.home)
    # A legacy store has relative paths, which are no keys.
    return key if rest.startswith("project:") else given


def _path(path: str, root: str, home: str) -> str:
    """Return a path relative to a directory that holds it, else to home."""
    for directory, begin in ((root, ""), (home, "~/")):
        if directory not in ("", "/", path) and within(directory, path):
            return begin + path[len(directory) + 1 :] or "./"
    return path
