"""OpenCode's plugin: a file of its own, copied as it is shipped but for one line."""

from pathlib import Path

from fleetd.protocol.errors import InvalidState

from .config_file import SettingsFile

_MARK = b"fleetd"
_ARGS = b"const ARGS = []"
_ENFORCING = b'const ARGS = ["enforce-locks"]'


def place() -> Path:
    """Return where this installation has the plugin."""
    return Path(__file__).absolute().parent.parent / "plugins" / "opencode.js"


def shipped() -> bytes:
    """Return the plugin of this installation; raises InvalidState when it is not there."""
    path = place()
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidState(
            f"This installation has no plugin for OpenCode: {path}: {error.strerror}.",
            hint="Install fleetd again.",
        ) from error


def is_ours(file: SettingsFile) -> bool:
    """Return whether a file is our plugin, of whatever version."""
    return file.data is not None and _MARK in file.data[:1_000]


def enforces(file: SettingsFile) -> bool:
    """Return whether the plugin in a file denies edits of files that others hold."""
    return file.data is not None and _ENFORCING in file.data


def content(file: SettingsFile, *, enforce: bool | None) -> bytes:
    """Return what belongs in the file; raises InvalidState when somebody else's is there.

    ``enforce`` None leaves lock enforcement as it is.
    """
    if file.data is not None and not is_ours(file):
        raise InvalidState(
            f"{file.path} is there already and is not fleetd's.",
            hint="Move it away or rename it, then try again. Nothing was changed.",
        )
    if enforces(file) if enforce is None else enforce:
        return shipped().replace(_ARGS, _ENFORCING)
    return shipped()
