"""Texts without a NUL: found wherever they are, and nothing else is touched."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.domain.core import text
from fleetd.domain.core.text import SIGN_OF_NUL, without_nul


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    value: Any
    other: Any = None


TEXTS = st.text(st.sampled_from("a\0\\u0\ud800é"), max_size=6)
VALUES = st.recursive(
    TEXTS | st.none() | st.integers() | st.binary(max_size=3),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(TEXTS, inner, max_size=3),
        st.builds(Told, inner, inner),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_no_text_has_a_nul_afterwards(value: Any) -> None:
    cleaned = without_nul(value)
    assert cleaned == text._cleaned(value)
    assert without_nul(cleaned) is cleaned


@pytest.mark.parametrize("other", [object(), {("a", 1): "b"}, len])
def test_what_is_no_json_is_looked_through(other: object) -> None:
    assert without_nul((Told("a\0"), other)) == (Told(f"a{SIGN_OF_NUL}"), other)


def test_a_value_without_a_nul_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(text, "_cleaned", looks)
    value = Told({"tool": ["a", 1, None]}, b"\0")
    assert without_nul(value) is value
