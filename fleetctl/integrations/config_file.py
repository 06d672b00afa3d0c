"""Settings files: read, and replaced whole or not at all, through no link out of a project.

A link stays a link: its target is replaced, and a project's target must be inside the project. The
new file has the old one's mode. A write replaces only what was read: the same file, behind the
same links.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fleetd.host import permissions
from fleetd.protocol.errors import FleetError, InvalidState, Storage

# The directories above a file need no read permission.
_WALK = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


def target_of(path: Path, project: Path | None) -> Path:
    """Return the file behind the links; raises InvalidState where it is out of the project."""
    target = Path(os.path.realpath(path))
    if project is not None and not target.is_relative_to(root := os.path.realpath(project)):
        raise InvalidState(
            f"{path} leads to {target}, out of the project {root}.",
            hint="The link may be part of the project, and was perhaps not made by you. Look at "
            f"its target, and remove the link: ls -ld {path.parent} {path}. Nothing was changed.",
        )
    return target


@contextmanager
def opened(directory: Path, *, make: int | None = None) -> Iterator[int]:
    """Open a directory by its real path; a link that has since appeared in it is an error.

    Missing directories are created with the mode ``make``, if it is given. Raises OSError.
    """
    here = os.open("/", _WALK)
    try:
        for part in directory.parts[1:]:
            deeper = _below(here, part, make)
            os.close(here)
            here = deeper
        yield here
    finally:
        os.close(here)


def _below(here: int, part: str, make: int | None) -> int:
    try:
        return os.open(part, _WALK, dir_fd=here)
    except FileNotFoundError:
        if make is None:
            raise
    os.mkdir(part, make, dir_fd=here)
    return os.open(part, _WALK, dir_fd=here)


LARGEST = 10_000_000
BACKUP = ".before-fleet"
# Nobody else may write these, whatever the umask.
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755


class SettingsFile(NamedTuple):
    """A file as it was read; ``data`` and ``info`` are None where there was none."""

    path: Path
    # The file behind the links, as they were when it was read.
    target: Path
    data: bytes | None
    info: os.stat_result | None
    # The suffix of its backup: one file can contain both hooks and servers.
    mark: str = BACKUP
    # The project that it belongs to; None for a file of the user.
    project: Path | None = None

    @property
    def mode(self) -> int | None:
        """Return its mode; None where there was no file."""
        return None if self.info is None else stat.S_IMODE(self.info.st_mode)

    @property
    def where(self) -> str:
        """Return its path, and the path behind the links if that differs."""
        return f"{self.path} -> {self.target}" if self._leads_elsewhere() else str(self.path)

    @property
    def remarks(self) -> list[str]:
        """Return what a user has to know before anything is written there."""
        leads = [f"{self.path} leads to {self.target}."] if self._leads_elsewhere() else []
        return [*leads, *filter(None, [self.exposed])]

    def _leads_elsewhere(self) -> bool:
        """Return whether it is not where its name says, be it that the home itself is a link."""
        base, path = self.project or Path.home(), self.path
        if path.is_relative_to(base):
            path = os.path.realpath(base) / path.relative_to(base)
        # Not Path.absolute, which keeps "..".
        return os.path.abspath(path) != str(self.target)  # noqa: PTH100

    @property
    def exposed(self) -> str:
        """Return what lets others write or replace the file; empty where only root can."""
        try:
            weak = permissions.weakness(self.path)
        except OSError as error:
            return f"{self.path}: nobody can say who may write there: {error.strerror}."
        return f"{weak}. Whoever does so has commands run as you." if weak else ""

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

    def diff(self, after: bytes | None, plugin: str = "") -> Iterator[str]:
        """Yield the lines by which new content differs, in the format of ``diff -u``.

        A ``plugin`` that is added or removed as a whole takes one line: its text would hide the
        other changes.
        """
        old, new = ("/dev/null" if each is None else str(self.path) for each in (self.data, after))
        before, now = (
            [] if each is None else each.decode(errors="replace").splitlines()
            for each in (self.data, after)
        )
        if plugin and not (before and now):
            summary = f"the plugin, {len(before or now)} lines, as in {plugin}"
            yield from (f"--- {old}", f"+++ {new}", f"{'-' if before else '+'} {summary}")
            return
        # Imported here: commands that only read do not need it.
        import difflib

        yield from difflib.unified_diff(before, now, old, new, lineterm="")

    def identity(self) -> tuple[object, ...]:
        """Return a value that stays the same until the file, its links or its owner change."""
        info = self.info
        stat_fields = info and (info.st_dev, info.st_ino, info.st_mode, info.st_uid, info.st_gid)
        return self.target, self.data, stat_fields


def read(path: Path, mark: str = BACKUP, project: Path | None = None) -> SettingsFile:
    """Read a file; raises InvalidState unless it is readable, regular and of sensible size.

    A project's file that is really outside the project is refused unread.
    """
    target = target_of(path, project)
    try:
        with (
            opened(target.parent) as above,
            open(target.name, "rb", opener=partial(_at_once, above)) as file,
        ):
            info = os.fstat(file.fileno())
            _check_kind(path, info)
            return SettingsFile(path, target, file.read(), info, mark, project)
    except (FileNotFoundError, NotADirectoryError):
        return SettingsFile(path, target, None, None, mark, project)
    except OSError as error:
        raise InvalidState(
            f"{path} cannot be read: {error.strerror}.", hint=f"Look at this place: ls -ld {path}."
        ) from error


def _at_once(above: int, name: str, flags: int) -> int:
    """Open without blocking: a pipe would wait for a writer."""
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=above)


def _check_kind(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        # Replacing it would destroy a pipe, or for everybody a device such as /dev/null.
        places = " ".join(dict.fromkeys((str(path), os.path.realpath(path))))
        raise InvalidState(
            f"{path} is no regular file, and would be replaced by one.",
            hint=f"Look at this place, then move the file away: ls -l {places}",
        )
    if info.st_size > LARGEST:
        raise InvalidState(
            f"{path} has {info.st_size} bytes, more than a settings file can have.",
            hint=f"The limit is {LARGEST} bytes. Check the file. Nothing was changed.",
        )


def check_writable(file: SettingsFile) -> None:
    """Raise InvalidState when the file's mode or the system forbids replacing it."""
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
            f"{file.path} cannot be written: {above} is no directory that you can write to.",
            hint=f"Look at its owner and mode: ls -ld {above}",
        )


def question(words: str, remarks: Sequence[str]) -> str:
    """Return a question with what the user has to know to answer it."""
    return " ".join((*dict.fromkeys(remarks), words))


def changed(file: SettingsFile) -> InvalidState:
    """Return the error for a file that changed after it was read."""
    return InvalidState(
        f"{file.path} was changed by somebody else just now; nothing was written.",
        hint="Run the command again.",
    )


def write(file: SettingsFile, data: bytes | None) -> None:
    """Put new content in the file's place, or remove it; raises Storage and InvalidState.

    Another process, such as the harness itself, may have written the file or added a link since:
    then nothing is changed. This is checked before anything is created, and again at the very end.
    """
    _check_unchanged(file)
    try:
        with opened(file.target.parent, make=None if data is None else _DIRECTORY_MODE) as above:
            check = partial(_check_unchanged, file, above)
            if data is None:
                check()
                os.unlink(file.target.name, dir_fd=above)
            else:
                mask = os.umask(0o077)
                os.umask(mask)
                mode = _FILE_MODE & ~mask if file.mode is None else file.mode
                put(above, file.target.name, data, mode, check)
    except OSError as error:
        raise Storage(
            f"{file.path} cannot be written: {error.strerror}.", hint="Nothing was changed in it."
        ) from error


def _check_unchanged(file: SettingsFile, above: int | None = None) -> None:
    """Raise InvalidState if the file or the directory behind its path has changed."""
    try:
        same = file.identity() == read(file.path, file.mark, file.project).identity()
        if above is not None:
            here, there = os.fstat(above), file.target.parent.lstat()
            same = same and os.path.samestat(here, there)
    except (FileNotFoundError, NotADirectoryError):
        same = False
    if not same:
        raise changed(file)


def put(
    above: int,
    name: str,
    data: bytes,
    mode: int,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write beside the place, then rename: a reader sees the old file or the new one.

    ``above`` is the open directory; ``check`` runs just before the rename. Raises OSError, and
    what ``check`` raises.
    """
    temporary = f".{name}.{os.urandom(6).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=above)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        check()
        os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
    except (OSError, FleetError):
        with suppress(OSError):
            os.unlink(temporary, dir_fd=above)
        raise
