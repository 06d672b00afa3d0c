"""Transcripts of sessions as agent CLIs write them, line by line; must not know who reads them."""

import json
from pathlib import Path
from typing import Any

from fleetd.protocol.timestamps import iso
from tests.support.fleet import NOON, SECOND

MODEL = "claude-sonnet-4-5"


def claude_line(number: int, at_ms: int | None = None, **usage: Any) -> dict[str, Any]:
    """Return Claude Code's line for the message with a number; ``usage`` changes its figures."""
    given = {
        "input_tokens": 100 + number,
        "output_tokens": 10,
        "cache_read_input_tokens": 1_000,
        "cache_creation_input_tokens": 50,
        "cache_creation": {"ephemeral_1h_input_tokens": 20, "ephemeral_5m_input_tokens": 30},
    }
    return {
        "type": "assistant",
        "uuid": f"u-{number}",
        "requestId": f"req_{number}",
        "timestamp": iso(NOON + number * SECOND if at_ms is None else at_ms),
        "message": {"id": f"msg_{number}", "model": MODEL, "usage": given | usage},
    }


def codex_count(number: int, total: list[int], last: list[int] | None) -> dict[str, Any]:
    """Return a rollout's line with a total and the last request: input, cached, output."""

    def usage(figures: list[int]) -> dict[str, int]:
        given, cached, output = figures
        return {
            "input_tokens": given,
            "cached_input_tokens": cached,
            "output_tokens": output,
            "reasoning_output_tokens": output // 2,
            "total_tokens": given + output,
        }

    info = {"total_token_usage": usage(total), "last_token_usage": last and usage(last)}
    return codex_line("event_msg", number, {"type": "token_count", "info": info})


def codex_line(kind: str, number: int, payload: dict[str, Any]) -> dict[str, Any]:
    """Return a rollout's line of a kind, ``number`` seconds after noon."""
    return {"timestamp": iso(NOON + number * SECOND), "type": kind, "payload": payload}


def text_of(*lines: dict[str, Any]) -> bytes:
    """Return lines as a CLI writes them."""
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in lines)


class TranscriptFile:
    """A file to which a CLI adds lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def add(self, *lines: dict[str, Any]) -> None:
        self.add_bytes(text_of(*lines))

    def add_bytes(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
