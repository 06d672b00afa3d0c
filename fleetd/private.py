"""Directories in which nobody else can act: makes them, refuses others; must not make files.

Whoever may rename what lies in a directory can put something else in its place. So a directory is
as safe as the least safe one on the way to it.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from .paths import PathRefused, runtime_dir
from .store.directory import make_directories

LINKS_MAX = 40
ADVICE = "Set FLEET_SOCKET to a path in a directory of your own with mode 0700."


def claim(directory: Path) -> None:
    """Make the directory of a socket if it is missing; raise PathRefused where others could act.

    Nobody else may even look into the one that is fleetd's own. One that a person has chosen, such
    as a home directory, may be open to others as long as they cannot write there.
    """
    try:
        make_directories(directory)
        info = directory.lstat()
        ways = list(_way(directory))
    except OSError as error:
        raise PathRefused(
            f"The socket's directory {directory} cannot be used: {error.strerror}. "
            "Set FLEET_SOCKET to a path in a directory of your own."
        ) from error
    if problem := _problem(info, alone=directory == runtime_dir()):
        raise PathRefused(
            f"The socket's directory {directory} {problem}. Run: chmod 700 {directory} - or set "
            "FLEET_SOCKET to a path in a directory of your own with mode 0700."
            if info.st_uid == os.getuid() and stat.S_ISDIR(info.st_mode)
            else f"The socket's directory {directory} {problem}. Somebody else could put a socket "
            f"there. {ADVICE}"
        )
    trusted = {0, os.getuid(), *_standing_for_root()}
    for path, above in ways:
        if problem := _weakness(above, trusted):
            raise PathRefused(
                f"The socket's directory {directory} is reached by {path}, which {problem}. "
                f"Somebody else could put another directory in its place. {ADVICE}"
            )


def _problem(info: os.stat_result, *, alone: bool) -> str | None:
    if stat.S_ISLNK(info.st_mode):
        return "is a symbolic link"
    if not stat.S_ISDIR(info.st_mode):
        return "is not a directory"
    if info.st_uid != os.getuid():
        return f"belongs to uid {info.st_uid}, not to uid {os.getuid()}"
    mode = f"has mode {stat.S_IMODE(info.st_mode):04o}"
    if info.st_mode & 0o022:
        return f"{mode}, so others may write to it"
    if alone and info.st_mode & 0o077:
        return f"{mode}, so others may look into it"
    return None


def _weakness(info: os.stat_result, trusted: set[int]) -> str | None:
    """Say what lets others exchange what lies in a directory on the way, or a link on it."""
    if info.st_uid not in trusted:
        return f"belongs to uid {info.st_uid}"
    # In a sticky directory one may rename one's own things only, and those are looked at next.
    if stat.S_ISLNK(info.st_mode) or info.st_mode & stat.S_ISVTX:
        return None
    group = info.st_mode & 0o020 and not _is_private(info.st_gid)
    if info.st_mode & 0o002 or group:
        return f"has mode {stat.S_IMODE(info.st_mode):04o}, so others may write to it"
    return None


def _way(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every directory and every symlink on the way from / to a directory, without it."""
    here, todo, links = Path("/"), list(directory.absolute().parts[1:]), 0
    yield here, here.lstat()
    while todo:
        part = todo.pop(0)
        if part == "..":
            here = here.parent
            continue
        info = (here / part).lstat()
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > LINKS_MAX:
                raise OSError(f"{directory} goes in a circle")
            yield here / part, info
            target = (here / part).readlink()
            here = Path("/") if target.is_absolute() else here
            todo = [each for each in target.parts if each != "/"] + todo
        else:
            here /= part
            if todo:
                yield here, info


def _is_private(gid: int) -> bool:
    """Whether a group is a user's own and nobody else's, as many systems make one for each."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return (group.gr_name, gid) == (user.pw_name, user.pw_gid) and not (
        set(group.gr_mem) - {user.pw_name}
    )


def _standing_for_root() -> set[int]:
    """Return the uid that root's files show where root has none, as in a hardened user unit."""
    try:
        mapped = Path("/proc/self/uid_map").read_text("ascii")
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    except (OSError, ValueError):
        return set()
    firsts = {line.split()[0] for line in mapped.splitlines() if line.split()}
    return set() if "0" in firsts else {overflow}
