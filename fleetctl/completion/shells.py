"""The scripts that complete command lines, and where shells look for such; asks no daemon."""

import os
import sys
from pathlib import Path

from ..args import Namespace
from ..integrations import config_file, settings_backups
from ..output import console
from ..prompts import Cancelled, confirm

SHELLS = ("bash", "zsh")
# Made by tools/completions, for what is installed under these names.
_SHARE = Path(__file__).parent.with_name("share")
_SCRIPTS = {
    "bash": ("bash-completion/completions/fleetctl", "bash-completion/completions/fleetd"),
    "zsh": ("zsh/site-functions/_fleetctl", "zsh/site-functions/_fleetd"),
}
# What is installed asks the installed fleetctl, so that it is never of another version.
_MARK = "# Written by fleetctl completions --install."
_LOADERS = {
    "bash": dict.fromkeys(
        ("fleetctl", "fleet", "fleetd"),
        f'{_MARK}\neval "$(fleetctl completions bash 2>/dev/null)"\n',
    ),
    "zsh": {
        f"_{name}": f"#compdef {commands}\n{_MARK}\n"
        f'eval "$(fleetctl completions zsh 2>/dev/null)" && _{name} "$@"\n'
        for name, commands in (("fleetctl", "fleetctl fleet"), ("fleetd", "fleetd"))
    },
}


def script(shell: str) -> str:
    """Return what a shell has to evaluate."""
    return "\n".join((_SHARE / name).read_text("utf-8") for name in _SCRIPTS[shell])


def directory(shell: str) -> Path:
    """Return where a user's own completions lie: bash-completion's place, or one for zsh."""
    data = os.environ.get("XDG_DATA_HOME", "")
    share = Path(data) if Path(data).is_absolute() else Path.home() / ".local/share"
    if shell == "zsh":
        return share / "zsh/site-functions"
    own = os.environ.get("BASH_COMPLETION_USER_DIR", "")
    return (Path(own) if Path(own).is_absolute() else share / "bash-completion") / "completions"


def install(args: Namespace, shell: str) -> int:
    """Show the files, ask, write them, and say what the shell needs besides; the status is 0.

    Raises Cancelled and InvalidParams from the question, InvalidState and Storage.
    """
    wanted = {directory(shell) / name: text for name, text in _LOADERS[shell].items()}
    found = {path: config_file.read(path) for path in wanted}
    pending = {path: text for path, text in wanted.items() if found[path].data != text.encode()}
    for path in pending:
        config_file.check_writable(found[path])
    remarks = [console.clean(each) for path in pending for each in found[path].remarks]
    if pending and not args.json:
        _show(pending)
    said = [*remarks, "[DRY RUN] Nothing was written."]
    if not pending:
        said = [f"The completions for {shell} are installed already."]
    elif not args.dry_run:
        if not args.yes and not confirm(config_file.question("Write these files?", remarks)):
            raise Cancelled("Nothing was written.")
        said = [line for path, text in pending.items() for line in _written(found[path], text)]
        said += remarks
    changed = bool(pending) and not args.dry_run
    document = {"shell": shell, "files": [str(path) for path in wanted], "changed": changed}
    return console.result(args, document, *said, *_instructions(shell))


def installed(shell: str) -> list[config_file.SettingsFile]:
    """Return the files that were written for a shell and are ours still."""
    found = (config_file.read(directory(shell) / name) for name in _LOADERS[shell])
    return [each for each in found if each.data is not None and _MARK.encode() in each.data]


def remove(file: config_file.SettingsFile) -> list[str]:
    """Remove a file, or put back what was there before, and say so.

    Raises Storage and InvalidState.
    """
    before = settings_backups.data(file)
    config_file.write(file, before)
    settings_backups.remove(file)
    return [f"Removed {file.path}" if before is None else f"Put {file.path} back as it was"]


def _written(file: config_file.SettingsFile, text: str) -> list[str]:
    """Write a file, and say so; what somebody else had put there is kept."""
    if file.data is None or _MARK.encode() in file.data:
        config_file.write(file, text.encode())
        return [f"Wrote {file.path}"]
    kept = settings_backups.replace(file, text.encode())
    return [f"Wrote {file.path}", f"What was there before: {kept}"]


def _show(pending: dict[Path, str]) -> None:
    for path, text in pending.items():
        console.line(f"{path}:")
        console.lines(f"  {line}" for line in text.splitlines())
    sys.stdout.flush()


def _instructions(shell: str) -> list[str]:
    if shell == "bash":
        return [
            "bash-completion loads them in new shells. Without it, ~/.bashrc needs this line:",
            '  eval "$(fleetctl completions bash)"',
        ]
    return [
        "zsh loads them in new shells, if ~/.zshrc has this line before compinit:",
        f"  fpath=({directory(shell)} $fpath)",
    ]
