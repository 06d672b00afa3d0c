"""Service managers: what each offers, the unit files they read, and how to run their programs.

Each unit file begins with a line that contains the checksum of the rest. It distinguishes a file
that somebody edited from one that an earlier version wrote.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleetd.protocol.errors import InvalidState

from ..integrations import config_file
from ..integrations.installation import run_program

if TYPE_CHECKING:
    import subprocess

    from .spec import ServiceSpec

CALL_S = 60
EDITED = ".edited"
_MARKS = {
    "daemon": "Written by fleetctl daemon install; its own text has the digest",
    "notify": "Written by fleetctl notify install; its own text has the digest",
    "web": "Written by fleetctl web install; its own text has the digest",
}
_MARKED = re.compile(rf"(?:{'|'.join(_MARKS.values())}) ([0-9a-f]{{16}})")


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run a program and return its result; one that is missing or hangs counts as failed."""
    try:
        return run_program(words, env={**os.environ, **_session()}, timeout_s=CALL_S)
    except OSError as error:
        # Imported here: most users of this module never need it.
        import subprocess

        message = f"{words[0]} cannot be run: {error}"
        return subprocess.CompletedProcess(words, 127, "", message)


def succeeds(*words: str) -> bool:
    """Return whether a program can be run and succeeds."""
    return run(*words).returncode == 0


def run_checked(*words: str) -> None:
    """Run a program that must succeed; raises InvalidState with its error."""
    done = run(*words)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        complaint = lines[-1] if lines else f"status {done.returncode}"
        raise InvalidState(
            f"{' '.join(words)} failed: {complaint}", hint="Run it by hand to see more."
        )


def properties(*words: str) -> Mapping[str, str]:
    """Return ``Name=value`` lines that a program prints; empty when it fails."""
    done = run(*words)
    lines = () if done.returncode else done.stdout.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def _session() -> dict[str, str]:
    """Return the variable that finds this user's manager where it is unset, as in su or cron."""
    runtime = Path(f"/run/user/{os.getuid()}")
    if "XDG_RUNTIME_DIR" in os.environ or not runtime.is_dir():
        return {}
    return {"XDG_RUNTIME_DIR": str(runtime)}


class UnitFile(NamedTuple):
    """A file and its planned content; ``after`` is None when the file is to be removed."""

    file: config_file.SettingsFile
    after: bytes | None

    @property
    def path(self) -> Path:
        """Return its path."""
        return self.file.path

    @property
    def changes(self) -> bool:
        """Return whether there is anything to do."""
        return self.after != self.file.data

    @property
    def edited(self) -> bool:
        """Return whether somebody changed or created it by hand."""
        return self.file.data is not None and not _is_ours(self.file.data)

    def diff(self) -> Iterator[str]:
        """Yield the lines of the change in the format of ``diff -u``."""
        return self.file.diff(self.after)

    def carry_out(self) -> Path | None:
        """Write or remove the file; return where a copy of an edited file is kept.

        Raises Storage and InvalidState.
        """
        kept = self.path.with_name(self.path.name + EDITED) if self.edited else None
        if kept:
            config_file.write(config_file.read(kept), self.file.data)
        config_file.write(self.file, self.after)
        return kept


def plan_unit_file(path: Path, text: str | None) -> UnitFile:
    """Return the planned change of a file; raises InvalidState when it may not be touched."""
    if path.is_symlink():
        raise InvalidState(
            f"{path} is a link, perhaps from a package of fleetd or because the unit is masked.",
            hint=f"Look where it leads: ls -l {path}. Remove the link, then try again.",
        )
    change = UnitFile(config_file.read(path), None if text is None else text.encode())
    if change.changes:
        config_file.check_writable(change.file)
    return change


def with_digest_line(text: str, before: str, after: str = "", by: str = "daemon") -> str:
    """Return a text with the line of its checksum, between the marks of a comment.

    ``by`` is the group of commands that writes the text.
    """
    return f"{before}{_MARKS[by]} {_digest(text)}{after}\n{text}"


def is_digest_line(line: str) -> bool:
    """Return whether a line is the one with the checksum."""
    return _MARKED.search(line) is not None


def _is_ours(data: bytes) -> bool:
    lines = data.decode(errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines):
        if found := _MARKED.search(line):
            return _digest("".join(lines[:number] + lines[number + 1 :])) == found[1]
    return False


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ServiceState(NamedTuple):
    """The state of a service; ``manager`` tells whether the service manager itself runs.

    ``enabled`` means that it starts by itself, ``listening`` that its first client starts it, and
    ``lingering`` that it stays when its user is not logged in. None means unknown.
    """

    kind: str
    manager: bool
    installed: bool
    files: Sequence[str] = ()
    enabled: bool | None = None
    active: bool = False
    listening: bool = False
    condition: str = ""
    lingering: bool | None = None
    log: str = ""


class Service(Protocol):
    """The functions of a service manager's module; ``systemd`` documents what each does."""

    KIND: str
    TITLE: str

    def runs(self) -> bool:
        """Return whether the manager answers now."""

    def waiting(self) -> str:
        """Return why nothing takes effect now, and when it will."""

    def program(self) -> str:
        """Return the program that is started."""

    def installed(self) -> bool:
        """Return whether files of ours exist."""

    def plan_install(self, spec: "ServiceSpec") -> list[UnitFile]:
        """Return what installing would write."""

    def plan_uninstall(self) -> list[UnitFile]:
        """Return what uninstalling would remove."""

    def summary(self, changes: list[UnitFile]) -> list[str]:
        """Return the lines of new files that are specific to this installation."""

    def stop_before_change(self) -> None:
        """Stop what runs before its files are changed."""

    def enable(self) -> None:
        """Start it now, where that is possible, and at every login."""

    def disable(self) -> None:
        """Stop it, and let nothing start it again."""

    def forget(self) -> None:
        """Make the manager notice that the files are gone."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it until the next login or start."""

    def restart(self) -> None:
        """Restart it."""

    def state(self) -> ServiceState:
        """Return its state."""

    def lingering(self) -> bool | None:
        """Return whether it outlives the last logout."""

    def linger(self) -> None:
        """Let it outlive the last logout."""
