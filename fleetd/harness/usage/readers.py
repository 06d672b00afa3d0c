"""Readers of usage by the agent CLI whose transcripts they know."""

from collections.abc import Mapping

from . import claude, codex, gemini, opencode
from .record import Read

READERS: Mapping[str, Read] = {
    claude.HARNESS: claude.read,
    codex.HARNESS: codex.read,
    gemini.HARNESS: gemini.read,
}
# For all other agent CLIs, the usage of their requests is unknown.
KNOWN = frozenset({*READERS, opencode.HARNESS})
