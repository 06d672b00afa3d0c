"""Which files a patch in the form of ``apply_patch`` changes; must not apply anything."""

import re

from .fields import path

# Spaces at a line's end are left to strip(): a pattern for both takes the square of their number.
_LINE = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
FILES = 200


def patched(patch: str, cwd: str | None) -> tuple[str, ...]:
    """Return the files that a patch changes, as absolute paths, each once."""
    named = (path(line[1].rstrip(), cwd) for line in _LINE.finditer(patch))
    return tuple(dict.fromkeys(file for file in named if file is not None))[:FILES]
