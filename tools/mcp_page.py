"""The generated part of docs/mcp.md: the tools, their arguments and their costs."""

import json
from pathlib import Path
from typing import Any

from fleetctl.mcp_server.server import INSTRUCTIONS, listing

PAGE = "docs/mcp.md"
BEGIN = "<!-- Written by make generate from the code; do not edit. -->\n"
END = "<!-- End of the tools -->"
ROOT = Path(__file__).resolve().parent.parent


def files() -> dict[str, str]:
    """Return the page with the current tools."""
    text = (ROOT / PAGE).read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {PAGE: f"{before}{BEGIN}\n{_tools()}\n{END}{after}"}


def _tools() -> str:
    listed = listing()
    rows = [_row(tool) for tool in json.loads(listed)["tools"]]
    head = ["| tool | takes | what its agent reads of it |", "|---|---|---|"]
    cost = (
        f"The whole list is {len(listed):,} bytes of JSON, about {len(listed) // 400 / 10:.1f}"
        f" thousand tokens, and the server's instructions {len(INSTRUCTIONS)} bytes more."
    )
    return "\n".join([*head, *rows, "", cost, ""])


def _row(tool: dict[str, Any]) -> str:
    schema = tool["inputSchema"]
    needed = schema.get("required", [])
    names = [f"`{name}`" if name in needed else f"`{name}`?" for name in schema["properties"]]
    hints = tool["annotations"]
    marks = [" *Reads only.*"] * hints["readOnlyHint"]
    marks += [" *Cannot be taken back.*"] * hints.get("destructiveHint", False)
    return f"| `{tool['name']}` | {', '.join(names)} | {tool['description']}{''.join(marks)} |"
