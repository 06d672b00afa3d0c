"""Reads settings files and puts new ones in their place, whole or not at all; knows no hooks.

A link stays a link: what it points to is replaced. The new file has the old one's mode.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fleetd.wire.errors import InvalidState, Storage

LARGEST = 10_000_000
BACKUP = ".before-fleet"


class SettingsFile(NamedTuple):
    """A file as it was read; ``data`` and ``mode`` are None where there was none."""

    path: Path
    data: bytes | None
    mode: int | None
    # How the copy beside it is called: hooks and servers may stand in one file.
    mark: str = BACKUP

    @property
    def target(self) -> Path:
        """Return the file behind the links."""
        return Path(os.path.realpath(self.path))

    @property
    def backup(self) -> Path:
        """Return the place of the copy, beside the file."""
        return self.path.with_name(self.path.name + self.mark)

    @property
    def text(self) -> str | None:
        """Return the content; raises InvalidState for bytes that are not UTF-8."""
        if self.data is None:
            return None
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            line = self.data.count(b"\n", 0, error.start) + 1
            raise InvalidState(
                f"{self.path} is not UTF-8: see line {line}.",
                hint="Save it as UTF-8, then try again. Nothing was changed.",
            ) from error

    def backup_text(self) -> str | None:
        """Return what the file held before our hooks came; None when there was no file."""
        try:
            return self.backup.read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None


def read(path: Path, mark: str = BACKUP) -> SettingsFile:
    """Read a file; raises InvalidState for what is no readable regular file of sensible size."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            info = os.fstat(file.fileno())
            _check_kind(path, info)
            return SettingsFile(path, file.read(), stat.S_IMODE(info.st_mode), mark)
    except (FileNotFoundError, NotADirectoryError):
        return SettingsFile(path, None, None, mark)
    except OSError as error:
        raise InvalidState(
            f"{path} cannot be read: {error.strerror}.", hint="Look at what stands there."
        ) from error


def _at_once(path: str, flags: int) -> int:
    """Open without waiting: a pipe would wait for somebody who writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _check_kind(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        # A new file in its place would end a pipe, or a device such as /dev/null for everybody.
        places = " ".join(dict.fromkeys((str(path), os.path.realpath(path))))
        raise InvalidState(
            f"{path} is no regular file, and would be replaced by one.",
            hint=f"Look at what stands there, then move it away: ls -l {places}",
        )
    if info.st_size > LARGEST:
        raise InvalidState(
            f"{path} has {info.st_size} bytes; that is no settings file.",
            hint=f"At most {LARGEST} are read. Look at what stands there. Nothing was changed.",
        )


def check_writable(file: SettingsFile) -> None:
    """Raise InvalidState when the file may not be replaced: its owner says so, or the system."""
    target = file.target
    if file.mode is not None and (not file.mode & 0o222 or not os.access(target, os.W_OK)):
        raise InvalidState(
            f"{file.path} is read-only.",
            hint=f"Allow writing with: chmod u+w {target}. Where another program makes this file, "
            "add what --dry-run shows to its source.",
        )
    above = next(each for each in target.parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise InvalidState(
            f"{file.path} cannot be written: {above} is no directory that you may write into.",
            hint=f"Look at its owner and mode: ls -ld {above}",
        )


def keep_copy(file: SettingsFile) -> Path | None:
    """Copy the file beside itself, in the place of an earlier copy; None when there is no file."""
    if file.data is None:
        return None
    _put(file.backup, file.data, file.mode)
    return file.backup


def write(file: SettingsFile, data: bytes | None) -> None:
    """Put new content in the file's place, or remove it; raises Storage and InvalidState.

    Somebody may have written meanwhile, such as the harness itself: then nothing is changed.
    """
    if read(file.path).data != file.data:
        raise InvalidState(
            f"{file.path} was changed by somebody else just now; nothing was written.",
            hint="Run the command again.",
        )
    try:
        if data is None:
            file.target.unlink()
        else:
            file.target.parent.mkdir(parents=True, exist_ok=True)
            _put(file.target, data, file.mode)
    except OSError as error:
        raise _unwritten(file.path, error) from error


def remove_copy(file: SettingsFile) -> None:
    """Remove the copy that was kept."""
    with suppress(OSError):
        file.backup.unlink()


def _put(path: Path, data: bytes, mode: int | None) -> None:
    """Write beside the place, then rename: a reader sees the old file or the new one."""
    # Imported here: who only looks writes nothing.
    import tempfile

    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
    except OSError as error:
        raise _unwritten(path, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), _default_mode() if mode is None else mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise _unwritten(path, error) from error


def _default_mode() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritten(path: Path, error: OSError) -> Storage:
    return Storage(
        f"{path} cannot be written: {error.strerror}.", hint="Nothing was changed in it."
    )
