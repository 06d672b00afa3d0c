"""OpenAI's Responses API as Codex asks it; must not know scripts or servers."""

import json
from secrets import token_hex
from typing import Any

from tests.agents.script import Call, Kind, Reply

COMPACTION_WORDS = "CONTEXT CHECKPOINT COMPACTION"
# Servers' tools are not offered from the start: the model looks for them.
SEARCH = "tool_search"
EMPTY_TOKENS, FULL_TOKENS = 2_000, 190_000


def kind(path: str, body: dict[str, Any]) -> Kind:
    """Tell a turn of the agent from a compaction and from everything asked on the side."""
    if not path.endswith("/responses"):
        return "side"
    items = body.get("input") or [{}]
    if COMPACTION_WORDS in str(items[-1].get("content")):
        return "compaction"
    # A title is asked for with all tools of a turn.
    if _of_title(body):
        return "side"
    return "turn" if body.get("tools") or items[0].get("type") == "additional_tools" else "side"


def _of_title(body: dict[str, Any]) -> bool:
    metadata = (body.get("client_metadata") or {}).get("x-codex-turn-metadata") or "{}"
    return bool(json.loads(metadata).get("thread_source") == "thread_title")


def streams(path: str, body: dict[str, Any]) -> bool:
    return body.get("stream") is True


def whole(reply: Reply, path: str) -> dict[str, Any]:
    """Return the answer to a request that wants no stream, such as the list of models."""
    return {"models": [], "data": []}


def events(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    """Return the answer as the events of a stream."""
    response = {"id": f"resp_{token_hex(8)}"}
    items = [_says(reply.text)] if reply.text else []
    items += [_calls(call) for call in reply.calls]
    usage = {
        "input_tokens": _tokens(reply),
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _tokens(reply) + 20,
    }
    told: list[tuple[str, dict[str, Any]]] = [("response.created", {"response": response})]
    told += [("response.output_item.done", {"item": item}) for item in items]
    told.append(("response.completed", {"response": response | {"usage": usage}}))
    return [(name, {"type": name} | data) for name, data in told]


def _says(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {
        "type": "message",
        "role": "assistant",
        "id": f"msg_{token_hex(8)}",
        "content": content,
    }


def _calls(call: Call) -> dict[str, Any]:
    # A server's tools are called by their own names, in a namespace of the server's.
    namespace, _, name = call.tool.rpartition("/")
    named = {"call_id": f"call_{token_hex(8)}", "name": name}
    named |= {"namespace": namespace} if namespace else {}
    if call.tool == SEARCH:
        found = {"type": "tool_search_call", "execution": "client", "arguments": call.input}
        return found | {"call_id": named["call_id"]}
    if isinstance(call.input, str):
        return {"type": "custom_tool_call", "input": call.input} | named
    return {"type": "function_call", "arguments": call.json} | named


def _tokens(reply: Reply) -> int:
    return FULL_TOKENS if reply.full else EMPTY_TOKENS
