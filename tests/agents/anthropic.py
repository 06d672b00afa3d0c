"""Anthropic's Messages API as Claude Code asks it; must not know scripts or servers."""

from secrets import token_hex
from typing import Any

from tests.agents.script import Call, Kind, Reply

COMPACTION_WORDS = (
    "Your task is to create a detailed summary",  # Claude Code
    "Please create a detailed summary of the conversation",  # Copilot CLI
    "Do not mention the summary process",  # OpenCode
)
EMPTY_TOKENS, FULL_TOKENS = 2_000, 190_000


def kind(path: str, body: dict[str, Any]) -> Kind:
    """Tell a turn of the agent from a compaction and from everything asked on the side."""
    if not path.startswith("/v1/messages") or "count_tokens" in path:
        return "side"
    asked = str(_since_last_answer(body.get("messages") or []))
    if any(words in asked for words in COMPACTION_WORDS):
        return "compaction"
    tools = {tool.get("name") for tool in body.get("tools") or []}
    return "turn" if tools & {"Bash", "bash"} else "side"


def _since_last_answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was said to the model after its last words, by the user and by the CLI."""
    answers = [n for n, message in enumerate(messages) if message.get("role") == "assistant"]
    return messages[answers[-1] + 1 :] if answers else messages


def streams(path: str, body: dict[str, Any]) -> bool:
    return body.get("stream") is True


def whole(reply: Reply, path: str) -> dict[str, Any]:
    """Return the answer to a request that wants no stream."""
    if "count_tokens" in path:
        return {"input_tokens": _tokens(reply)}
    return _message(reply) | {
        "content": [{"type": "text", "text": reply.text}],
        "stop_reason": "end_turn",
    }


def events(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    """Return the answer as the events of a stream."""
    blocks = [_text(reply.text)] if reply.text else []
    blocks += [_tool_use(call) for call in reply.calls]
    told: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": _message(reply)})]
    for index, (block, delta) in enumerate(blocks):
        told.append(("content_block_start", {"index": index, "content_block": block}))
        told.append(("content_block_delta", {"index": index, "delta": delta}))
        told.append(("content_block_stop", {"index": index}))
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    told.append(("message_delta", {"delta": stop, "usage": {"output_tokens": 20}}))
    told.append(("message_stop", {}))
    return [(name, {"type": name} | data) for name, data in told]


def _message(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"msg_{token_hex(8)}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": _tokens(reply), "output_tokens": 20},
    }


def _text(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"type": "text", "text": ""}, {"type": "text_delta", "text": text}


def _tool_use(call: Call) -> tuple[dict[str, Any], dict[str, Any]]:
    block = {"type": "tool_use", "id": f"toolu_{token_hex(8)}", "name": call.tool, "input": {}}
    return block, {"type": "input_json_delta", "partial_json": call.json}


def _tokens(reply: Reply) -> int:
    return FULL_TOKENS if reply.full else EMPTY_TOKENS
