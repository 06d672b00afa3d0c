"""The log of a session as Gemini CLI writes it; must not know who reads it."""

import json
from pathlib import Path

CONTEXT = {"id": "ctx", "content": [{"text": 'the context, with "id":"quoted" in it'}]}


def says(name: str) -> dict[str, object]:
    """Return a message whose id and text are a name."""
    return {"id": name, "timestamp": "2026-11-22T04:40:29.694Z", "content": [{"text": name}]}


def replaced(*names: str) -> dict[str, object]:
    """Return the line that replaces the conversation with the context and these messages."""
    return {"$set": {"messages": [CONTEXT, *map(says, names)]}}


class GeminiLog:
    """A file to which each event adds a line."""

    def __init__(self, directory: Path, name: str = "session") -> None:
        self.path = directory / f"{name}.jsonl"
        self.add({"sessionId": "s", "kind": "main"})

    def add(self, *lines: dict[str, object]) -> None:
        with self.path.open("a") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
