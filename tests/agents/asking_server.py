"""An MCP server on stdio whose one tool asks the user something; a program of its own."""

import json
import sys
from typing import Any

WORDS = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
QUESTION = {"message": "Which port?", "requestedSchema": WORDS}
TOOL = {"name": "ask", "description": "Ask", "inputSchema": {"type": "object", "properties": {}}}


def say(**said: Any) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **said}), flush=True)


def main() -> None:
    """Answer until stdin ends."""
    call = None
    for line in sys.stdin:
        told = json.loads(line)
        match told.get("method"):
            case "initialize":
                version = told["params"]["protocolVersion"]
                server = {"name": "asking", "version": "1"}
                result = {"protocolVersion": version, "serverInfo": server}
                say(id=told["id"], result=result | {"capabilities": {"tools": {}}})
            case "tools/list":
                say(id=told["id"], result={"tools": [TOOL]})
            case "tools/call":
                call = told["id"]
                say(id="asked", method="elicitation/create", params=QUESTION)
            case None if told.get("id") == "asked":
                content = [{"type": "text", "text": json.dumps(told.get("result"))}]
                say(id=call, result={"content": content})
            case _ if "id" in told:
                say(id=told["id"], error={"code": -32601, "message": "unknown"})


if __name__ == "__main__":
    main()
