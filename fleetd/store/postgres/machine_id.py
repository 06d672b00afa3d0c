"""The id of this machine in a shared store."""

import contextlib
import re
import secrets
from pathlib import Path

from ...host.atomic_files import make_directories, write_new
from ..api import StoreRefused

NAME = "machine-id"
_ID = re.compile(r"[0-9a-f]{16}")


def machine_id(directory: Path) -> str:
    """Return the id of this machine, made at the first call and kept in a file.

    Raises StoreRefused for a file that is none of ours: under another id the machine would be
    another one, and would leave its agents and files behind.
    """
    path = directory / NAME
    try:
        make_directories(directory)
        if not path.exists():
            _make(path)
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreRefused(f"{path} cannot be read: {error}") from error
    if not _ID.fullmatch(text):
        raise StoreRefused(
            f"{path} holds no machine id (16 hex digits). Put it back from a copy; or remove it, "
            "and this machine counts as a new one."
        )
    return text


def _make(path: Path) -> None:
    """Write the file whole or not at all; of two that do, the first one's stays."""
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        write_new(part, f"{secrets.token_hex(8)}\n".encode())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)
