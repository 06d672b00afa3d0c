"""Permissions: which other users may change or replace a file, by owners and modes.

A user who may rename entries of a directory can replace them. So a file is as safe as the least
safe directory on its path.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

LINKS_MAX = 40


def weakness(path: Path) -> str | None:
    """Return what lets others change a file, or one made at this path; None when nothing does.

    A link is as safe as its target and the path to it. Raises OSError.
    """
    try:
        if problem := of_file(path.stat()):
            return f"{path} {problem}"
    except FileNotFoundError:  # then only the path counts, as far as it exists
        pass
    found = way_problem(path)
    return found and f"{path} is reached by {found[0]}, which {found[1]}"


def of_file(info: os.stat_result) -> str | None:
    """Return what lets others write to a file."""
    return _foreign_owner(info, {0, os.getuid()}) or _mode(info)


def way_problem(path: Path) -> tuple[Path, str] | None:
    """Return what others could replace on the way to a path, and why; raises OSError.

    If the path does not exist, its existing part is checked.
    """
    trusted = {0, os.getuid(), *_standing_for_root()}
    try:
        for each, info in _way(path):
            if problem := _on_the_way(info, trusted):
                return each, problem
    except FileNotFoundError:
        pass
    return None


def _on_the_way(info: os.stat_result, trusted: set[int]) -> str | None:
    """Return what lets others replace entries of a directory on the way, or a link on it."""
    if problem := _foreign_owner(info, trusted):
        return problem
    # In a sticky directory users may rename only their own entries, which are checked next.
    if stat.S_ISLNK(info.st_mode) or info.st_mode & stat.S_ISVTX:
        return None
    return _mode(info)


def _foreign_owner(info: os.stat_result, trusted: set[int]) -> str | None:
    return None if info.st_uid in trusted else f"belongs to uid {info.st_uid}"


def _mode(info: os.stat_result) -> str | None:
    group = info.st_mode & 0o020 and not _is_private(info.st_gid)
    if info.st_mode & 0o002 or group:
        return f"has mode {stat.S_IMODE(info.st_mode):04o}, so others may write to it"
    return None


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every directory and symlink on the way from / to a path, without its end."""
    here, todo, links = Path("/"), list(path.absolute().parts[1:]), 0
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
                raise OSError(f"{path} is a loop of links")
            yield here / part, info
            target = (here / part).readlink()
            here = Path("/") if target.is_absolute() else here
            todo = [each for each in target.parts if each != "/"] + todo
        else:
            here /= part
            if todo:
                yield here, info


def _is_private(gid: int) -> bool:
    """Return whether a group belongs to one user alone; many systems make one for each user."""
    # Imported here: few users have files that a group may write.
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return (group.gr_name, gid) == (user.pw_name, user.pw_gid) and not (
        set(group.gr_mem) - {user.pw_name}
    )


def _standing_for_root() -> set[int]:
    """Return the uid that root's files show if root is not mapped, as in a hardened user unit."""
    try:
        mapped = Path("/proc/self/uid_map").read_text("ascii")
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))
    except (OSError, ValueError):
        return set()
    firsts = {line.split()[0] for line in mapped.splitlines() if line.split()}
    return set() if "0" in firsts else {overflow}
