"""Options: which reasons are reported over which channels, from the command line or a file.

The file is private: URLs and commands hold secrets, which a unit or a command line would show to
others.
"""

import json
import shlex
import tomllib
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fleetd.host import paths
from fleetd.protocol.errors import InvalidState, Storage

from ..args import Namespace, UsageError
from ..integrations import config_file
from .due import DEFAULT_REASONS, REASONS
from .urls import checked_webhook, shown

if TYPE_CHECKING:
    from .outbox import Channel

PRIVATE = 0o600
_HEAD = "# Written by fleetctl notify install. It may hold secrets: keep the mode 0600.\n"


class NotifyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to report, and over which channels; without any channel it is the desktop."""

    reasons: list[str] = msgspec.field(name="for", default_factory=lambda: [*DEFAULT_REASONS])
    desktop: bool = False
    command: list[str] = []
    webhook: list[str] = []
    apprise: list[str] = []

    def channels(self) -> "list[Channel]":
        """Return the channels; raises InvalidState and InvalidParams for unusable ones."""
        # Imported here: reading the options needs no network code.
        from .channels import Apprise, Command, Webhook
        from .desktop import desktop

        made: list[Channel] = [desktop()] if self.shows_desktop else []
        made += _each("command", self.command, Command)
        made += _each("webhook", self.webhook, Webhook)
        made += _each("apprise", self.apprise, Apprise)
        return made

    def reachable(self) -> "tuple[NotifyOptions, str]":
        """Return the options without an unreachable desktop, and a warning about it.

        Raises InvalidState where the desktop is the only channel.
        """
        from .desktop import missing_desktop

        why = missing_desktop() if self.shows_desktop else ""
        if not why:
            return self, ""
        warning = f"No desktop notifications here: {why}."
        if not (self.command or self.webhook or self.apprise):
            raise InvalidState(
                warning, hint="Name another channel: --command CMD, --webhook URL or --apprise URL."
            )
        return msgspec.structs.replace(self, desktop=False), warning

    @property
    def shows_desktop(self) -> bool:
        """Return whether the desktop is one of the channels."""
        return self.desktop or not (self.command or self.webhook or self.apprise)

    def described(self) -> list[str]:
        """Return the channels in words, without what may be secret."""
        return [
            *(["desktop"] if self.shows_desktop else []),
            *(["command"] * len(self.command)),
            *(f"webhook {shown(each)}" for each in self.webhook),
            *(f"apprise {shown(each)}" for each in self.apprise),
        ]


def _each(
    name: str, values: Sequence[str], make: "Callable[[str, str], Channel]"
) -> "list[Channel]":
    """Return a channel for each value; the second of a kind has a number in its name."""
    return [
        make(value, name if number == 1 else f"{name} {number}")
        for number, value in zip(count(1), values, strict=False)
    ]


def reasons_of(text: str) -> list[str]:
    """Return the reasons that ``--for`` lists; raises UsageError for one that is unknown."""
    given = [word for each in text.split(",") if (word := each.strip())]
    if not given or not set(given) <= {*REASONS}:
        wrong = next((each for each in given if each not in REASONS), "")
        raise UsageError(
            f"--for: {wrong!a} is no reason. Expected one or more, with commas between them, of: "
            f"{', '.join(REASONS)}."
            if wrong
            else f"--for names no reason. Expected one or more of: {', '.join(REASONS)}."
        )
    return [each for each in REASONS if each in given]


def from_arguments(args: Namespace) -> NotifyOptions | None:
    """Return the options of a command line, None where it has none.

    Raises UsageError and InvalidParams for invalid values.
    """
    given = NotifyOptions(
        reasons=[*DEFAULT_REASONS] if args.reasons is None else reasons_of(args.reasons),
        desktop=args.desktop,
        command=args.command_line or [],
        webhook=args.webhook or [],
        apprise=args.apprise or [],
    )
    for url in given.webhook:
        checked_webhook(url)
    if args.reasons is None and given == NotifyOptions():
        return None
    return given


def options_path() -> Path:
    """Return the file of the options, beside fleetd's own settings."""
    return paths.config_path().with_name("notify.toml")


def from_file() -> NotifyOptions | None:
    """Return the options in the file, None where there is none; raises InvalidState.

    A file that others may read is refused.
    """
    path = options_path()
    found = config_file.read(path)
    if found.data is None:
        return None
    if (found.mode or 0) & 0o077:
        raise InvalidState(
            f"Others than you may read {path}, and it may hold secrets.",
            hint=f"Correct this with: chmod 600 {shlex.quote(str(path))}",
        )
    try:
        options = msgspec.convert(tomllib.loads(found.text or ""), NotifyOptions)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidState(
            f"{path} is wrong: {error}.",
            hint="fleetctl notify install --help shows the options; for = [...], desktop = true, "
            "command = [...], webhook = [...] and apprise = [...] are the keys.",
        ) from error
    try:
        reasons_of(",".join(options.reasons))
    except UsageError as error:
        raise InvalidState(f"{path} is wrong: {error.message}") from error
    return options


def to_toml(options: NotifyOptions) -> str:
    """Return options as the text of the file."""
    lines = [f"for = {_array(options.reasons)}"]
    if options.shows_desktop:
        lines.append("desktop = true")
    channels = {key: getattr(options, key) for key in ("command", "webhook", "apprise")}
    lines += [f"{key} = {_array(values)}" for key, values in channels.items() if values]
    return _HEAD + "\n".join(lines) + "\n"


def _array(values: Sequence[str]) -> str:
    # JSON strings are TOML strings, except for one character that TOML wants escaped.
    texts = (json.dumps(each, ensure_ascii=False).replace("\x7f", "\\u007f") for each in values)
    return f"[{', '.join(texts)}]"


def write(options: NotifyOptions | None) -> None:
    """Write the file, which nobody else may read; None removes it. Raises Storage, InvalidState."""
    file = config_file.read(options_path())
    if options is None:
        if file.data is not None:
            config_file.write(file, None)
        return
    config_file.check_writable(file)
    try:
        with config_file.opened(file.target.parent, make=0o700) as above:
            config_file.put(above, file.target.name, to_toml(options).encode(), PRIVATE)
    except OSError as error:
        raise Storage(
            f"{file.path} cannot be written: {error.strerror}.", hint="Nothing was changed in it."
        ) from error
