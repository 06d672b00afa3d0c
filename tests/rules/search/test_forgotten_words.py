"""What is forgotten leaves no byte in the index, however large it is."""

import random
import string
from pathlib import Path

import pytest

from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.message import MessageSend
from fleetd.protocol.requests.note import NoteAdd
from fleetd.protocol.requests.search import SearchQuery
from fleetd.protocol.requests.system import SystemForget
from tests.support import shared_store
from tests.support.fleet import Fleet

pytestmark = pytest.mark.skipif(bool(shared_store.SERVER), reason="the files of SQLite")
SEED = 7
# The index cuts the words that part its pages; as much of one tells nearly all of it.
BEGINNING = 7
# In words that are forgotten, behind their first letter.
START = b"qz"


def invented(chance: random.Random, start: str) -> str:
    return start + "".join(chance.choices(string.ascii_lowercase, k=12))


def bytes_of(fleet: Fleet) -> bytes:
    files = (Path(f"{fleet.database}{ending}") for ending in ("", "-wal"))
    return b"".join(file.read_bytes() for file in files if file.exists())


def separators(fleet: Fleet) -> list[bytes]:
    """Return what parts the pages of the index: the beginnings of words."""
    return [
        bytes(row["term"]) for row in fleet.sql("SELECT term FROM search_words_idx") if row["term"]
    ]


async def test_forget_leaves_no_word_of_a_mission_in_the_index(fleet: Fleet) -> None:
    chance = random.Random(SEED)
    going, kept = await fleet.mission(title="one"), await fleet.mission(title="two")
    secret, public = list[str](), list[str]()
    # So many that the index has many pages, and words that go are the first on some.
    for _ in range(60):
        for mission, words, start in ((going, secret, START.decode()), (kept, public, "kw")):
            new = [
                invented(chance, f"{chance.choice(string.ascii_lowercase)}{start}")
                for _ in range(40)
            ]
            words += new
            name = f"/src/{new[0]}_{new[1]}.py"
            place = {"mission_id": mission.id}
            text = " ".join(new)
            await fleet.do(EventAppend("prompt_submitted", data={"prompt": text}, **place))
            await fleet.do(EventAppend("file_modified", data={"file": name}, **place))
            await fleet.do(MessageSend("ann", ["bob"], new[2], body=text, **place))
            await fleet.do(NoteAdd("finding", text, path=name, mission_id=mission.id))
    # In one piece, as an old index is: what parts its pages is then written by no merge again.
    fleet.sql("INSERT INTO search_words (search_words) VALUES ('optimize')")
    assert any(START in term for term in separators(fleet))
    before = bytes_of(fleet)
    assert sum(word.encode() in before for word in secret) == len(secret)
    parts = {word[:BEGINNING].encode() for word in secret}
    assert sum(part in before for part in parts) == len(parts)
    await fleet.do(SystemForget(mission_id=going.id))
    after = bytes_of(fleet)
    assert [word for word in secret if word.encode() in after] == []
    assert [part for part in parts if part in after] == []
    assert [term for term in separators(fleet) if START in term] == []
    assert all(word.encode() in after for word in public)
    assert (await fleet.do(SearchQuery(secret[0]))).hits == []
    assert len((await fleet.do(SearchQuery(public[5]))).hits) == 3


async def test_without_the_scrub_deleted_words_would_be_seen(fleet: Fleet) -> None:
    """The test above can fail: a plain deletion leaves bytes in free pages."""
    word = invented(random.Random(SEED), "qz")
    await fleet.do(EventAppend("prompt_submitted", data={"prompt": f"{word} " * 50}))
    fleet.sql("DELETE FROM events WHERE type = 'prompt_submitted'")
    assert (await fleet.do(SearchQuery(word))).hits == []
    assert word.encode() in bytes_of(fleet)
