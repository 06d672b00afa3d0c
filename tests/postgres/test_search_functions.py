"""The search index on a server: what its functions make of words and names."""

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from fleetd.store.postgres.connection import connect
from fleetd.store.postgres.migrate import migrate
from tests.support.postgres_server import LocalPostgres

LETTERS = "ab é😀\n-_¤¦'\\"
# A tsvector knows no position beyond this one.
LAST = 16_383


@pytest.fixture(scope="module")
def connection(postgres: LocalPostgres) -> Iterator[psycopg.Connection[Any]]:
    with closing(connect(postgres.url(postgres.new_database()), "test")) as connection:
        migrate(connection, "test")
        yield connection


def vector(words: str) -> dict[str, list[int]]:
    """Return the places of each word, the first 256 of them, as PostgreSQL keeps them."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words.split(" "), 1):
        if word:
            places.setdefault(word, []).append(min(place, LAST))
    return {word: sorted(set(found))[:256] for word, found in places.items()}


@pytest.mark.parametrize(
    "words",
    [
        *("", " ", "one", "one two one", " two  spaces ", "¤kfile ¤mmsn¤7ca63ed4", "é 😀 x\ny"),
        "many " * 300,
        " ".join(f"w{number}" for number in range(LAST + 20)),
    ],
    ids=range(9),
)
def test_words_have_their_places(connection: psycopg.Connection[Any], words: str) -> None:
    rows = connection.execute(
        "SELECT lexeme, positions FROM unnest(search_vector(%s))", (words,)
    ).fetchall()
    assert dict(rows) == vector(words)


def test_names_have_all_parts_of_three_letters(connection: psycopg.Connection[Any]) -> None:
    chance = random.Random(1)
    names = ["", "a", "ab", "abc", "abcd", "abcde", "aaaaaa", "/srv/a-b_c/é😀.py"]
    names += ["".join(chance.choices(LETTERS, k=chance.randrange(40))) for _ in range(200)]
    for each in names:
        ((parts,),) = connection.execute("SELECT search_parts(%s)", (each,)).fetchall()
        assert set(parts) == {each[at : at + 3] for at in range(len(each) - 2)}, each
