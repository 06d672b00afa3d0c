"""Payloads of hooks read in pieces: the same object comes out, and no call reads much at once."""

import json
import random
from typing import Any

import pytest

from fleetd.engine.hooks import payloads
from fleetd.harness.report import Unfit

UNITS = ["x", "é", "漢", "😀", '"', "\\", "\n", "\x01", "\\u0041", '","', "a\\"]
LONG, PIECE = 40, 100


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have texts be long, and pieces full, soon."""
    monkeypatch.setattr(payloads, "LARGE_CHARS", 2 * PIECE)
    monkeypatch.setattr(payloads, "LONG_CHARS", LONG)
    monkeypatch.setattr(payloads, "PIECE_CHARS", PIECE)


def nested(chance: random.Random, deep: int = 0) -> Any:
    """Return an object, a list or a text, of what escapes differently."""
    kind = chance.choice(("text", "text", "list", "dict", "number")) if deep < 4 else "text"
    if kind == "text":
        length = chance.choice((0, 1, LONG - 1, LONG, LONG + 1, 3 * PIECE))
        return "".join(chance.choices(UNITS, k=length))
    if kind == "number":
        return chance.choice((None, True, 1.5, -7))
    parts = [nested(chance, deep + 1) for _ in range(chance.randrange(3))]
    if kind == "list":
        return parts
    return {nested(chance, 4): part for part in parts}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(300))
def test_a_payload_in_pieces_is_the_payload(seed: int) -> None:
    chance = random.Random(seed)
    said = {"first": nested(chance), "text": chance.choice(UNITS) * 2_000, "last": nested(chance)}
    for ascii_only in (True, False):
        text = json.dumps(said, ensure_ascii=ascii_only, indent=chance.choice((None, 2)))
        found = payloads.decode(text)
        assert found == said
        assert json.dumps(found) == json.dumps(said)  # in the same order


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(300))
def test_what_is_damaged_is_the_same_in_pieces_as_whole(seed: int) -> None:
    chance = random.Random(seed)
    text = json.dumps({"a": chance.choice(UNITS) * 600, "b": nested(chance)})
    at = chance.randrange(len(text))
    damaged = (
        text[:at] + chance.choice(['"', "\\", "", "\x00", "{", "\\ud800", "\\q"]) + text[at + 1 :]
    )

    def outcome(read: Any) -> Any:
        try:
            return read(damaged)
        except (Unfit, ValueError):
            return "refused"

    def whole(text: str) -> Any:
        found = payloads._whole(text)
        return found if isinstance(found, dict) else "refused"

    assert outcome(payloads.decode) == outcome(whole)


@pytest.mark.usefixtures("small")
def test_half_a_character_is_taken_in_a_long_text() -> None:
    for before in range(PIECE - 14, PIECE + 2):
        text = "x" * before + "\\ud83d\\ude00" + "y" * 200 + "\\ud83d" + "z" * 200
        payload = f'{{"a":"{text}"}}'
        assert payloads.decode(payload) == json.loads(payload)


@pytest.mark.usefixtures("small")
def test_nesting_that_the_parser_bears_is_no_matter() -> None:
    deep = 450 * "[" + 450 * "]"
    text = f'{{"long":"{"x" * 1_000}","deep":{deep}}}'
    assert payloads.decode(text) == json.loads(text)


@pytest.mark.parametrize("unit", UNITS)
def test_no_call_reads_a_large_payload_at_once(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = payloads._whole

    def spy(text: str) -> Any:
        read.append(len(text))
        return whole(text)

    monkeypatch.setattr(payloads, "_whole", spy)
    said = {"name": "x", "text": unit * 2_000_000, "more": [unit * 40_000, {"n": 1}]}
    assert payloads.decode(json.dumps(said, ensure_ascii=False)) == said
    assert max(read) <= payloads.PIECE_CHARS + len('""')


@pytest.mark.parametrize("text", ["", "[]", '"x"', "{", "1", '["' + "x" * 2_000_000 + '"]'])
def test_what_is_no_object_is_unfit(text: str) -> None:
    with pytest.raises(Unfit):
        payloads.decode(text)
