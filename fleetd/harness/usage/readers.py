"""Readers of usage by the agent CLI whose transcripts they know."""

from collections.abc import Mapping

from . import claude, codex, gemini, opencode
from .record import Read

READERS: Mapping[str, Read] = {
    claude.HARNESS: claude.read,
    codex.HARNESS: codex.read,
    gemini.HARNESS: gemini.read,
}
# Of all other agent CLIs it is not known what their requests took.
KNOWN = frozenset({*READERS, opencode.HARNESS})
