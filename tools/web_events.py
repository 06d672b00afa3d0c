"""The event types for the page of ``fleetctl web``: sentences, tones and what to read again."""

import json

from fleetd.protocol.event_types import EVENT_TYPES

MODULE = "fleetctl/web/static/event_types.js"
HEAD = """\
// Written by make generate from the code; do not edit.

/** By name: the pieces of the sentence, the tone, where it is shown, what to read again. */
export const EVENT_TYPES = {
"""


def files() -> dict[str, str]:
    """Return the module by its path."""
    rows = []
    for each in EVENT_TYPES.values():
        row = [list(each.sentence), each.tone, each.shown, list(each.refreshes or ())]
        rows.append(f"  {each.name}: {json.dumps(row, separators=(',', ':'))},\n")
    return {MODULE: HEAD + "".join(rows) + "};\n"}
