"""The store that preceded fleetd: ``squawk.json``, as the import finds it."""

import json
from pathlib import Path
from typing import Any


def event(kind: str, minute: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "occurred_at": f"2026-01-05T10:{minute:02}:00.000Z", **more}


def beside(root: Path, content: Any) -> Path:
    """Put a squawk.json where the database is or will be."""
    file = root / "data" / "squawk.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return file
