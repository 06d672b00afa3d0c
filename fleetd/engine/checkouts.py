"""Checkouts: reads from Git's files what is checked out in a directory, without a process.

Every hook needs this. If Git stores branches in another way, such as a reftable, the branch and
the commit are unknown.
"""

import contextlib
import os
import re

from ..domain.core.context import Checkout
from ..domain.liveness.needs import one_line
from ..host.file_system import PathWalk

# Enough for a pointer to a repository, which is a path.
LINE_BYTES = 5_000
# The most bytes to read of packed branches, since every hook reads them.
PACKED_BYTES = 1_000_000
# The name of the branch that Git writes if branches are not files.
_ELSEWHERE = ".invalid"
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def checkout_at(root: str | None, walk: PathWalk) -> Checkout:
    """Return what is checked out in the work tree at ``root``; empty outside of a work tree."""
    if root is None or root == "/":
        return Checkout()
    git = f"{root}/.git"
    walk.visit(git)
    try:
        if (pointer := _first_line(git)) is not None and pointer.startswith("gitdir: "):
            git = os.path.normpath(os.path.join(root, pointer.removeprefix("gitdir: ")))  # noqa: PTH118
            walk.visit(git)
        head = _first_line(f"{git}/HEAD")
        if head is None or not head.startswith("ref: "):
            return Checkout(root, head=_commit(head))
        name = head.removeprefix("ref: ")
        branch = name.removeprefix("refs/heads/")
        if branch == _ELSEWHERE:
            return Checkout(root)
        return Checkout(root, one_line(branch), _resolved(git, name, walk))
    finally:
        walk.at = None


def _resolved(git: str, name: str, walk: PathWalk) -> str | None:
    """Return the commit of a branch; those of linked work trees are in the first work tree."""
    common = _first_line(f"{git}/commondir")
    if common is not None:
        git = os.path.normpath(os.path.join(git, common))  # noqa: PTH118
        walk.visit(git)
    if ".." in name or name.startswith("/"):
        return None
    return _commit(_first_line(f"{git}/{name}")) or _packed(f"{git}/packed-refs", name)


def _packed(path: str, name: str) -> str | None:
    text = b"\n" + (_read(path, PACKED_BYTES) or b"")
    found = text.find(f" {name}\n".encode())
    return _commit(text[text.rfind(b"\n", 0, found) + 1 : found].decode()) if found > 0 else None


def _commit(commit: str | None) -> str | None:
    return commit if commit and _COMMIT.fullmatch(commit) else None


def _first_line(path: str) -> str | None:
    with contextlib.suppress(ValueError):  # not UTF-8
        return (_read(path, LINE_BYTES) or b"").decode().partition("\n")[0].strip() or None
    return None


def _read(path: str, most: int) -> bytes | None:
    with contextlib.suppress(OSError, ValueError):  # ValueError: not a path
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, most)
        finally:
            os.close(descriptor)
    return None
