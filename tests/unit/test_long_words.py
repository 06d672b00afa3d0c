"""Tokens are looked for in long words only: every one has to be in such a word."""

import pytest

from fleetd.domain.redaction.redact import redact, redact_data
from fleetd.domain.redaction.tokens import LEAST, SHAPES, long_words
from tests.unit.secret_samples import TOKENS


@pytest.mark.parametrize(("kind", "token"), TOKENS)
def test_a_token_is_a_long_word(kind: str, token: str) -> None:
    assert token in long_words(f"é {token} ü")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.needle)
def test_a_needle_is_part_of_the_long_word(shape) -> None:
    word = shape.needle + "a" * LEAST
    assert long_words(f"short words\n{word}\tmore of them") == word


def test_short_words_are_left_out() -> None:
    assert long_words("a" * (LEAST - 1) + " " + "b" * LEAST + "\u212a" + "c" * LEAST) == (
        "b" * LEAST + " " + "c" * LEAST
    )
    assert long_words("") == ""


@pytest.mark.parametrize(
    "control", ["\n", "\t", "\r", "\x01", "\x0c", "\x7f", '"', "\\", "é ", "ß\n"]
)
def test_a_token_in_data_is_found_after_any_character(control: str) -> None:
    """The first look is at the data as JSON, which writes these in other ways."""
    alone = next(token for kind, token in TOKENS if kind == "jwt")
    assert (
        redact_data([control + alone]) == [redact(control + alone)] == [control + "[redacted:jwt]"]
    )


@pytest.mark.parametrize("seed", ["password:a1 ", "token=a1b2 ", "TOKEN=//a ", "é password: 'a' "])
def test_a_flood_of_names_is_gone_through(seed: str) -> None:
    assert redact(seed * 2_000).count("[redacted:") in (0, 2_000)
