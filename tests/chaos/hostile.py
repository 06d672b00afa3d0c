"""What hostile clients send: a table of frames, and a grammar that makes new ones from a seed."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetd.protocol.framing import HOOK_BEGINS
from fleetd.protocol.methods import METHODS

MB = 1024 * 1024
PAYLOADS = Path(__file__).parents[1] / "harness" / "payloads"
# Its file path comes from the frame.
NOT_TRIED = {"system.backup"}
# Patterns of secrets, and texts that make careless patterns take for ever.
TEXTS = (
    "A",
    "a1",
    "eyJ",
    "-----BEGIN ",
    "sk-",
    "key=",
    "Bearer ",
    "://a:",
    "\\u0041",
    "é",
    "😀",
    "=",
)


@dataclass(frozen=True)
class Frame:
    """Bytes to send, and how: ``whole`` ends with a line feed, else the client just waits.

    ``lines`` is the number of lines: the promised cost is for each line. ``cut`` is the size of
    each write in bytes, 0 for a single write. ``limit`` is the limit that the error must name.
    """

    name: str
    data: bytes
    whole: bool = True
    lines: int = 1
    cut: int = 0
    limit: str | None = None


Maker = Callable[[random.Random, int], Frame]


def request(method: str, params: Any, identity: Any = 1) -> dict[str, Any]:
    """Return a request as an object."""
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


def line(content: Any) -> bytes:
    """Return a JSON line without its line feed."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(
        errors="surrogatepass"
    )


def hook_line(payload: str, harness: str = "claude", delivery: str = "0" * 32) -> bytes:
    """Return a line as the hook client writes it, without its line feed."""
    params = {"delivery_id": delivery, "harness": harness, "args": [], "payload": payload}
    message = {"jsonrpc": "2.0", "method": "hook.deliver", "params": params, "id": 1}
    return line(message)


def recorded() -> list[bytes]:
    """Return valid lines: one of each method, and the real payloads of hooks."""
    given: dict[str, Any] = {
        "mission.create": {"title": "t", "sorties": [{"title": "s"}], "metadata": {"a": [1]}},
        "event.append": {"type": "step_taken", "data": {"n": 1}, "agent_id": "a"},
        "lock.acquire": {"file": "/tmp/x", "agent_id": "a", "timeout_ms": 1_000},
        "message.send": {"from": "a", "to": ["b"], "subject": "t", "body": "b"},
        "agent.register": {"agent_id": "a", "role": "specialist"},
        "event.subscribe": {"since": 0, "types": ["a"]},
        "system.forget": {"mission_id": "msn-00000000"},
    }
    lines = [line(request(name, given.get(name, {}))) for name in METHODS if name not in NOT_TRIED]
    paths = sorted(PAYLOADS.glob("*/*.json"))
    return lines + [hook_line(path.read_text(), path.parent.name) for path in paths]


RECORDED = recorded()
HELLO = line(request("system.hello", {}))


def _simple(
    name: str, data: bytes, *, whole: bool = True, lines: int = 1, limit: str | None = None
) -> Maker:
    return lambda _chance, _scale: Frame(name, data, whole, lines, limit=limit)


def _endless(name: str, begin: bytes) -> Maker:
    """Return a line of 100 MB; few of them are ever sent."""
    return lambda _chance, _scale: Frame(name, begin + b"x" * (100 * MB), limit="line_bytes")


def _ids() -> list[Any]:
    return [1.5, 1e300, True, [], {}, [1], {"a": 1}, "x" * 900_000, -(2**63), 2**64, 2**80, "\x00"]


def _event(text: str) -> bytes:
    return line(request("event.append", {"type": "hostile_text", "data": {"text": text}}))


def _repeated(unit: str, size: int) -> str:
    return unit * (size // max(1, len(unit.encode())))


def _flood(name: str, unit: bytes) -> Maker:
    return lambda _chance, scale: Frame(name, unit * scale, lines=scale)


def _keys(count: int) -> bytes:
    return b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(count)) + b"}"


def _every_cut() -> bytes:
    """Return a valid request cut at every byte, each as a line of its own."""
    whole = line(request("mission.create", {"title": "cut", "metadata": {"é": ["\\", '"']}}))
    return b"\n".join(whole[:end] for end in range(1, len(whole)))


def _table() -> list[Maker]:
    call = line(request("event.append", {"type": "hostile_list", "data": {"a": 0}}))
    call = call.replace(b"0}}}", b"%b}}}")
    numbers = (
        b"NaN",
        b"-Infinity",
        b"1e999999",
        b"-1e999999",
        b"9" * 100_000,
        b"0." + b"9" * 99_999,
    )
    texts = (b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\xf8\x88\x80\x80\x80"', b'"\\ud800"', b'"a\x00b"')
    broken = (b'"\\u00"', b'"\\x"', b"'a'", b"{,}", b"[1,]", b"01", b"+1", b".5", b"tru", b'"\x1f"')
    whole = line(request("mission.create", {"title": "never"}))
    return [
        _simple("2 MB of junk in a batch", b"[" + b"{]," * 700_000, limit="line_bytes"),
        _simple("2 MB of numbers in a batch", b"[" + b"1," * MB + b"1]", limit="line_bytes"),
        _simple("depth 100,000", b"[" * 100_000, limit="depth"),
        _simple("depth 100,000, closed", b"[" * 100_000 + b"]" * 100_000, limit="depth"),
        _simple(
            "depth 100,000 of objects", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, limit="depth"
        ),
        _simple("depth in params", call % (b"[" * 60_000 + b"]" * 60_000), limit="depth"),
        _endless("100 MB in a line", b""),
        _endless("100 MB like a hook's line", HOOK_BEGINS),
        _simple("no line feed", b"x" * 1_000, whole=False, limit="line_timeout_ms"),
        _simple("half a request for ever", whole[:30], whole=False, limit="line_timeout_ms"),
        _simple(
            "a megabyte and no line feed", b"x" * (MB - 1), whole=False, limit="line_timeout_ms"
        ),
        _simple(
            "half a hook's line for ever",
            HOOK_BEGINS + b"x" * (2 * MB),
            whole=False,
            limit="line_timeout_ms",
        ),
        *(_simple(f"number {each[:9]!r}", call % each) for each in numbers),
        *(_simple(f"text {each!r}", call % each) for each in texts),
        *(_simple(f"broken {each!r}", call % each) for each in broken),
        *(_simple(code, whole.decode().encode(code)) for code in ("utf-16", "utf-32", "utf-16-be")),
        _simple("a byte order mark", b"\xef\xbb\xbf" + whole),
        _simple("NUL bytes", b"\x00" * (MB - 1)),
        _simple("blank of a megabyte", b" " * (MB - 1)),
        _simple("carriage returns", b"\r" * 1_000 + HELLO + b"\r\r\r"),
        _simple("duplicate keys", whole[:-1] + b',"method":"system.hello","id":2}'),
        _simple("many keys", _keys(60_000)),
        _simple("many keys in params", call % _keys(60_000)),
        _simple(
            "keys of a method",
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + _keys(60_000) + b"}",
        ),
        _simple("one key a megabyte long", b'{"' + b"k" * (MB - 100) + b'":1}'),
        _simple("wide", call % (b"[" + b",".join([b"[]"] * 90_000) + b"]")),
        _simple(
            "too many containers", call % (b"[" + b"[]," * 200_000 + b"[]]"), limit="containers"
        ),
        _simple("brackets in a string", call % (b'"' + b"[{" * 400_000 + b'"')),
        _simple("quotes", call % (b'"' + b'\\"' * 400_000 + b'"')),
        _simple("quotes that never end", b'"\\' * 400_000),
        _simple(
            "a batch of large ones",
            line(
                [request("event.append", {"type": "large_one", "data": {"a": "x" * 20_000}})] * 50
            ),
            lines=50,
        ),
        _simple("a batch of 51", line([request("system.hello", {})] * 51), limit="batch"),
        _simple("a batch of junk", line([1, None, "", [], {}] * 10)),
        *(
            _simple(f"id {str(each)[:12]}", line(request("system.hello", {}, each)))
            for each in _ids()
        ),
        *(
            _simple(f"method {str(each)[:12]}", line(request(each, {})))
            for each in (1, None, [], {}, "", "x" * 900_000, "\x00", "rpc.x", "__class__")
        ),  # type: ignore[arg-type]
        *(
            _simple(f"params {str(each)[:12]}", line(request("mission.create", each)))
            for each in (1, None, "x", [[]], [{}], {"title": []}, {"title": "x" * 900_000}, {"": 1})
        ),
        *(_simple(f"a text of {each}", _event(_repeated(each, 900_000))) for each in TEXTS),
        *(
            _simple(
                f"a hook of {each}",
                hook_line(
                    json.dumps(
                        {
                            "hook_event_name": "UserPromptSubmit",
                            "session_id": "s",
                            "prompt": _repeated(each, 900_000),
                        }
                    )
                ),
            )
            for each in TEXTS[:6]
        ),
        _flood("empty lines by the million", b"\n" * 100),
        _flood("\\r\\n by the million", b"\r\n" * 100),
        _flood("tiny notifications", b'{"jsonrpc":"2.0","method":"x"}\n'),
        _flood("tiny junk", b"1\n"),
        _simple("a request cut at every byte", _every_cut(), lines=100),
        *(_large(each) for each in ("x", "[{", '\\"', "é", "😀", "\\ud800", "\x00", "A=", "eyJ")),
        _large("[", json_of=False),
    ]


def _large(unit: str, *, json_of: bool = True) -> Maker:
    """Return a hook's line of nearly 16 MiB, in the short form of 1.5, with such contents."""

    def make(_chance: random.Random, scale: int) -> Frame:
        size = 15 * MB if scale > 1_000 else 3 * MB // 2
        text = _repeated(unit, size // 2 if unit in ('\\"', "\x00") else size)
        said = {"hook_event_name": "PostToolUse", "session_id": "s", "tool_response": text}
        payload = json.dumps(said, ensure_ascii=False) if json_of else text
        return Frame(f"a large hook of {unit!r}", hook_line(payload)[: 16 * MB - 1])

    return make


TABLE = _table()


# What the seed makes


def flipped(chance: random.Random) -> bytes:
    """Return a valid line with some bits flipped."""
    data = bytearray(chance.choice(RECORDED))
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data).replace(b"\n", b" ")


def spliced(chance: random.Random) -> bytes:
    """Return the beginning of a valid line and the end of another, or of the same line."""
    one, other = chance.choice(RECORDED), chance.choice(RECORDED)
    return one[: chance.randrange(len(one) + 1)] + other[chance.randrange(len(other) + 1) :]


def cut(chance: random.Random) -> bytes:
    """Return a valid line without its end."""
    data = chance.choice(RECORDED)
    return data[: chance.randrange(1, len(data))]


def value(chance: random.Random, depth: int = 0) -> Any:
    """Return any JSON value, and some that JSON does not allow."""
    kinds: list[Callable[[], Any]] = [
        lambda: chance.choice((None, True, False, 0, -1, 2**53, 2**64, 1.5, 1e300, float("nan"))),
        lambda: chance.choice(
            ("", "a", "\x00", "\ud800", "\u202e", "../..", "msn-00000000", "é" * 300)
        ),
        lambda: chance.choice(TEXTS) * chance.choice((1, 100, 10_000)),
    ]
    if depth < 6:
        kinds += [
            lambda: [value(chance, depth + 1) for _ in range(chance.randrange(5))],
            lambda: {
                str(value(chance, 9)): value(chance, depth + 1) for _ in range(chance.randrange(5))
            },
        ]
    return chance.choice(kinds)()


def strange(chance: random.Random) -> bytes:
    """Return a request of a real method with arbitrary parameters."""
    name = chance.choice([name for name in METHODS if name not in NOT_TRIED])
    names = list(METHODS[name].__struct_fields__)
    params = {
        field: value(chance) for field in chance.sample(names, chance.randrange(len(names) + 1))
    }
    message = request(name, params, chance.choice((1, "x", None, 2**70)))
    for member in chance.sample(list(message), chance.choice((0, 0, 1))):
        message[member] = value(chance)
    return line(message)


def odd_payload(chance: random.Random) -> bytes:
    """Return a hook's line whose real payload has other values in some places."""
    path = chance.choice(sorted(PAYLOADS.glob("*/*.json")))
    content = json.loads(path.read_text())
    for _ in range(chance.choice((1, 2, 5))):
        content[chance.choice([*content, "new"])] = value(chance)
    delivery = f"{chance.getrandbits(128):032x}"
    return hook_line(json.dumps(content), path.parent.name, delivery)


def generated(chance: random.Random, _scale: int) -> Frame:
    """Return one or several lines from the grammar, sent in one go or in pieces."""
    makers = (flipped, spliced, cut, strange, strange, odd_payload, lambda _: HELLO)
    names = [chance.choice(makers) for _ in range(chance.choice((1, 1, 1, 3, 20)))]
    parts = [make(chance) for make in names]
    data = b"\n".join(parts)
    pieces = chance.choice((0, 0, 0, 1, 7, 4_096)) if len(data) < 2_000 else 0
    called = ", ".join(sorted({getattr(make, "__name__", "hello") for make in names}))
    return Frame(f"{called} ({len(parts)})", data, lines=data.count(b"\n") + 1, cut=pieces)
