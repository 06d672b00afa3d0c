"""Google's generateContent API as Gemini CLI asks it; must not know scripts or servers."""

from typing import Any

from tests.agents.script import Kind, Reply

COMPACTION_WORDS = "state_snapshot"
EMPTY_TOKENS, FULL_TOKENS = 2_000, 900_000


def kind(path: str, body: dict[str, Any]) -> Kind:
    """Tell a turn of the agent from a compaction and from everything asked on the side."""
    if "enerateContent" not in path:
        return "side"
    if COMPACTION_WORDS in str(body.get("systemInstruction")):
        return "compaction"
    return "turn" if "streamGenerateContent" in path and body.get("tools") else "side"


def streams(path: str, body: dict[str, Any]) -> bool:
    return "streamGenerateContent" in path


def whole(reply: Reply, path: str) -> dict[str, Any]:
    """Return the answer to a request that wants no stream, also to one that counts tokens."""
    return {"totalTokens": _tokens(reply)} if "countTokens" in path else _chunk(reply)


def events(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    """Return the answer as the events of a stream, which have no names here."""
    return [("", _chunk(reply))]


def _chunk(reply: Reply) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": reply.text}] if reply.text else []
    parts += [{"functionCall": {"name": call.tool, "args": call.input}} for call in reply.calls]
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": _tokens(reply),
            "candidatesTokenCount": 20,
            "totalTokenCount": _tokens(reply) + 20,
        },
    }


def _tokens(reply: Reply) -> int:
    return FULL_TOKENS if reply.full else EMPTY_TOKENS
