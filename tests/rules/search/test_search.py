"""Search: what is found, how it is told, and that what goes is found no more."""

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from fleetd.domain.core.context import BatchSizes
from fleetd.domain.core.tx import Tx
from fleetd.domain.search import index
from fleetd.domain.search import search as rules
from fleetd.engine.jobs.search import index_backlog
from fleetd.harness.report import PromptSubmitted
from fleetd.protocol.errors import InvalidParams, LimitExceeded, NotFound
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.message import MessageGet, MessageSend
from fleetd.protocol.requests.mission import MissionCancel, MissionCreate, MissionDelete
from fleetd.protocol.requests.note import NoteAdd, NoteGet, NoteWithdraw
from fleetd.protocol.requests.search import SearchHit, SearchPage, SearchQuery
from fleetd.protocol.requests.sortie import SortieProgress
from fleetd.protocol.requests.system import SystemDoctor
from tests.support import shared_store
from tests.support.fleet import HOUR, Fleet, opened
from tests.support.hook_sessions import Window

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
only_sqlite = pytest.mark.skipif(bool(shared_store.SERVER), reason="SQLite's own index")


async def search(fleet: Fleet, query: str = "", **more: Any) -> SearchPage:
    return await fleet.do(SearchQuery(query, **more))


async def hits(fleet: Fleet, query: str = "", **more: Any) -> list[SearchHit]:
    return (await search(fleet, query, **more)).hits


async def texts(fleet: Fleet, query: str = "", **more: Any) -> list[str]:
    return [hit.excerpt for hit in await hits(fleet, query, **more)]


async def prompt(fleet: Fleet, text: str, **more: Any) -> int:
    return (await fleet.do(EventAppend("prompt_submitted", data={"prompt": text}, **more))).seq


async def test_every_kind_is_found_by_its_words(fleet: Fleet) -> None:
    mission = await fleet.mission(sorties=1, title="Build the walrus")
    await fleet.agents(mission, "ann")
    there = {"mission_id": mission.id, "agent_id": "ann"}
    await prompt(fleet, "Feed the walrus", **there)
    for kind, data in (
        ("agent_answered", {"message": "The walrus is fed"}),
        ("command_finished", {"command": "walrus --feed", "result": "FAIL", "error": "no fish"}),
        ("file_modified", {"file": "/src/walrus.py", "tool": "Edit"}),
        ("walrus_seen", {"where": {"on": ["the walrus beach"]}}),
    ):
        await fleet.do(EventAppend(kind, data=data, **there))
    sent = await fleet.do(MessageSend("ann", ["bob"], "Fish", "For the walrus"))
    note = await fleet.do(
        NoteAdd("ruled-out", "No herring", because="the walrus is full", mission_id=mission.id)
    )
    found = await hits(fleet, "WALRUS")
    assert [hit.kind for hit in found] == [
        *("note", "mail", "event", "file", "command", "answer", "prompt", "event"),
    ]
    assert [hit.id for hit in found][:3] == [note.id, sent.id, None]
    assert [hit.type for hit in found][2:4] == ["walrus_seen", "file_modified"]
    assert found[-1].excerpt == "Build the walrus"
    assert {hit.mission_id for hit in found} == {mission.id}
    for hit in found:
        [mark] = hit.marks
        assert hit.excerpt[mark.start : mark.end].lower() == "walrus"
    assert await texts(fleet, "walrus", kind="command") == ["walrus --feed no fish"]
    assert len(await hits(fleet, "walrus", agent_id="ann")) == 6
    assert (await fleet.do(MessageGet(sent.id))).deliveries[0].status == "queued"
    assert (await fleet.do(NoteGet(note.id))).text == "No herring"


async def test_what_says_nothing_costs_nothing(fleet: Fleet) -> None:
    mission = await fleet.mission()
    await fleet.agents(mission, "ann")
    [before] = fleet.sql("SELECT count(*) AS n FROM search_documents")
    sortie = (await fleet.sorties(mission))[0]
    await fleet.do(SortieProgress(sortie.id, 20))
    await fleet.do(LockAcquire("ann", "a.py", mission_id=mission.id))
    await fleet.do(EventAppend("tool_started", data={"tool": "Read", "call_id": "c1"}))
    await fleet.do(EventAppend("tool_finished", data={"tool": "Read", "file": "/etc/hosts"}))
    assert fleet.sql("SELECT count(*) AS n FROM search_documents") == [before]


async def test_the_title_of_a_sessions_mission_is_found_as_its_prompt_only(fleet: Fleet) -> None:
    await Window(fleet).tell(PromptSubmitted("Paint the shed"))
    page = await search(fleet, "shed")
    assert [hit.kind for hit in page.hits] == ["prompt"]
    await fleet.do(MissionCreate("Tidy the shed"))
    page = await search(fleet, "shed")
    assert [hit.kind for hit in page.hits] == ["event", "prompt"]


@pytest.mark.parametrize("before", [-(2**62), 2**62])
async def test_a_place_may_be_any_number_of_the_log(fleet: Fleet, before: int) -> None:
    assert (await search(fleet, "shed", before=before)).hits == []


async def test_words_stand_as_they_are_typed(fleet: Fleet) -> None:
    for text in ("Parse the config", "parse_config fails", "naïve Straße", "NOT a word", "10% off"):
        await prompt(fleet, text)
    assert await texts(fleet, "parse config") == ["parse_config fails", "Parse the config"]
    assert await texts(fleet, "parse_config") == ["parse_config fails"]
    assert await texts(fleet, "se_con") == ["parse_config fails"]
    assert await texts(fleet, "NAIVE strasse") == ["naïve Straße"]
    assert await texts(fleet, "not") == ["NOT a word"]
    assert await texts(fleet, "par*") == ["parse_config fails", "Parse the config"]
    assert await texts(fleet, "par") == ["parse_config fails"]
    assert await texts(fleet, '"10%') == ["10% off"]
    assert await texts(fleet, "config parser") == []


@pytest.mark.parametrize("few", [0, 500])
async def test_a_path_is_found_by_any_part_of_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    mission = await fleet.mission(sorties=0)
    file = "/home/ann/project/src/auth/login_form.py"
    await fleet.do(EventAppend("file_modified", data={"file": file}))
    await prompt(fleet, "Look at src/auth/login.py")
    await fleet.do(NoteAdd("finding", "Slow", path="src/auth/x.py", mission_id=mission.id))
    assert [hit.kind for hit in await hits(fleet, path="src/auth")] == ["note", "prompt", "file"]
    assert await texts(fleet, path="GIN_fo") == [file]
    assert await texts(fleet, "look", path="auth/login") == ["Look at src/auth/login.py"]
    assert await texts(fleet, path="auth/log%") == []
    monkeypatch.setattr(rules, "FEW", few)
    assert await texts(fleet, "look", path="auth/login") == ["Look at src/auth/login.py"]
    assert await texts(fleet, "ook", path="auth/login") == []
    assert await texts(fleet, "rc/aut", path="auth/login") == ["Look at src/auth/login.py", file]
    assert await texts(fleet, "look OR fox*", path="src/auth", raw=True) == [
        "Look at src/auth/login.py"
    ]
    assert await texts(fleet, "src NOT look", path="src/auth", kind="file", raw=True) == [file]
    with pytest.raises(InvalidParams, match="3 characters"):
        await search(fleet, path="py")


async def test_the_newest_come_first_page_by_page(fleet: Fleet) -> None:
    for number in range(7):
        await prompt(fleet, f"page {number}")
    page = await search(fleet, "page", limit=3)
    assert [hit.excerpt for hit in page.hits] == ["page 6", "page 5", "page 4"]
    assert page.more == 4
    rest = await search(fleet, "page", limit=3, before=page.hits[-1].seq)
    assert ([hit.excerpt for hit in rest.hits], rest.more) == (["page 3", "page 2", "page 1"], 1)


async def test_since_a_time(fleet: Fleet) -> None:
    await prompt(fleet, "old owl")
    fleet.clock.pass_by(2 * HOUR)
    await prompt(fleet, "young owl")
    assert await texts(fleet, "owl", since_time=fleet.clock.now) == ["young owl"]


async def test_raw_queries(fleet: Fleet) -> None:
    for text in ("red fox", "red dog", "brown fox", "the red old fox"):
        await prompt(fleet, text)
    asked = {
        "red AND fox": ["the red old fox", "red fox"],
        "red fox": ["the red old fox", "red fox"],
        '"red fox"': ["red fox"],
        "brown OR dog": ["brown fox", "red dog"],
        "fox NOT (old OR brown)": ["red fox"],
        '"red o" OR dog': ["red dog"],
        "bro*": ["brown fox"],
        '"red foxe"*': [],
        '"old fox"*': ["the red old fox"],
    }
    for query, expected in asked.items():
        assert await texts(fleet, query, raw=True) == expected, query


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("red OR", "character 7: a word is missing"),
        ("(red", "character 5: a closing parenthesis is missing for the one at character 1"),
        ("red)", r"character 4: '\)' is not expected"),
        ('red "fox', "character 5: the quotation mark is not closed"),
        ("AND red", "character 1: a word is missing before 'AND'"),
        ("red --- x", "character 5: it has no word"),
        ("re*", "character 1: a star needs three characters"),
        ("(" * 60 + "x" + ")" * 60, "parentheses stand in each other"),
    ],
)
async def test_an_error_of_a_raw_query_has_a_position(fleet: Fleet, query: str, told: str) -> None:
    with pytest.raises(InvalidParams, match=told) as refused:
        await search(fleet, query, raw=True)
    assert refused.value.values["field"] == "query"


async def test_what_cannot_be_searched_is_refused(fleet: Fleet) -> None:
    for query in ("", "  "):
        with pytest.raises(InvalidParams, match="empty"):
            await search(fleet, query)
    with pytest.raises(InvalidParams, match="no words"):
        await search(fleet, "-- ...")
    with pytest.raises(InvalidParams, match="more than 100 words"):
        await search(fleet, "a " * 101)
    with pytest.raises(NotFound):
        await search(fleet, "x", mission_id="msn-00000000")
    with pytest.raises(NotFound, match="Agent not found: nobody"):
        await search(fleet, "x", agent_id="nobody")


async def test_a_secret_is_not_indexed(fleet: Fleet) -> None:
    await prompt(fleet, f"Use the token {TOKEN}")
    [row] = fleet.sql("SELECT words, names FROM search_documents WHERE kind = 'prompt'")
    assert TOKEN.lower() not in row["words"] + row["names"]
    assert await texts(fleet, TOKEN[4:20]) == []


async def test_a_long_text_is_told_where_it_matches(fleet: Fleet) -> None:
    await prompt(fleet, "lorem " * 200 + "\n\tpelican\x1b[31m " + "ipsum " * 200)
    [hit] = await hits(fleet, "pelican")
    assert hit.excerpt.startswith("…")
    assert hit.excerpt.endswith("…")
    assert len(hit.excerpt) < 250
    [mark] = hit.marks
    assert hit.excerpt[mark.start : mark.end] == "pelican"
    assert await texts(fleet, "z" * 64) == []


async def test_what_is_pruned_deleted_or_moved_leaves_the_index(fleet: Fleet) -> None:
    gone, kept = await fleet.mission(title="falcon one"), await fleet.mission(title="falcon two")
    for mission in (gone, kept):
        await prompt(fleet, "falcon prompt", mission_id=mission.id)
        await fleet.do(MessageSend("ann", ["bob"], "falcon mail", mission_id=mission.id))
        await fleet.do(NoteAdd("finding", "falcon note", mission_id=mission.id))
    assert len(await hits(fleet, "falcon")) == 8
    await fleet.do(MissionCancel(gone.id, "done"))
    await fleet.do(MissionDelete(gone.id))
    assert {hit.mission_id for hit in await hits(fleet, "falcon")} == {kept.id}
    assert len(await hits(fleet, "falcon")) == 4
    [left] = fleet.sql(
        "SELECT count(*) AS n FROM search_documents WHERE mission_id = :id", id=gone.id
    )
    assert left["n"] == 0


async def test_a_note_that_moves_is_found_in_its_new_mission(fleet: Fleet) -> None:
    one, two = await fleet.mission(sorties=0), await fleet.mission(sorties=0)
    await fleet.do(NoteAdd("finding", "raven note", mission_id=one.id))
    fleet.sql("UPDATE notes SET mission_id = :id", id=two.id)
    assert await texts(fleet, "raven", mission_id=one.id) == []
    assert await texts(fleet, "raven", mission_id=two.id) == ["raven note"]
    assert await doctor(fleet) == [(True, False)]


async def test_a_withdrawn_note_and_its_reason_are_found(fleet: Fleet) -> None:
    mission = await fleet.mission(sorties=0)
    note = await fleet.do(NoteAdd("decision", "Use heron", mission_id=mission.id))
    await fleet.do(NoteWithdraw(note.id, "heron is too slow"))
    assert [hit.kind for hit in await hits(fleet, "heron")] == ["event", "note"]


async def test_records_of_before_are_indexed_from_the_newest(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    sizes = BatchSizes(rows=3)
    async with opened(tmp_path, batches=sizes) as fleet:
        mission = await fleet.mission(sorties=2, title="swift")
        for number in range(8):
            await prompt(fleet, f"swift {number}")
            await fleet.do(MessageSend("ann", ["bob"], f"swift mail {number}"))
        await fleet.do(NoteAdd("finding", "swift note", mission_id=mission.id))
        whole = fleet.sql("SELECT * FROM search_documents ORDER BY id")
        fleet.sql("DELETE FROM search_documents")
        [end] = fleet.sql("SELECT max(seq) AS seq FROM events")
        fleet.sql(
            "INSERT INTO store_meta (key, value) VALUES ('search_backlog', :seq)",
            seq=str(end["seq"]),
        )
        page = await search(fleet, "swift")
        assert (page.hits, page.indexing) == ([], 0)
        assert await fleet.engine.write(index.catch_up)
        page = await search(fleet, "swift")
        assert page.hits[0].excerpt == "swift note"
        assert page.indexing is not None
        assert 0 < page.indexing < 100
        await prompt(fleet, "swift and new")
        await index_backlog(fleet.engine)
        page = await search(fleet, "swift", limit=100)
        assert (len(page.hits), page.indexing) == (19, None)
        assert fleet.sql("SELECT * FROM search_documents ORDER BY id")[:-1] == whole


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM search_documents WHERE id IN (SELECT max(id) FROM search_documents)",
        "DELETE FROM search_documents WHERE kind = 'mail'",
        "UPDATE search_documents SET agent_id = 'eve' WHERE kind = 'prompt'",
        (
            "INSERT INTO search_documents (id, kind, at, words, names)"
            " VALUES (99, 'prompt', '', 'x', '')"
        ),
        (
            "INSERT INTO search_documents (id, kind, source, at, words, names)"
            " VALUES (-5, 'note', 'nte-00000000', '', 'x', 'abc')"
        ),
    ],
)
async def test_the_doctor_finds_and_mends_what_is_wrong(tmp_path: Path, harm: str) -> None:
    async with opened(tmp_path, batches=BatchSizes(rows=3)) as fleet:
        mission = await fleet.mission(sorties=1)
        for number in range(4):
            await prompt(fleet, f"stork {number}")
            await fleet.do(MessageSend("ann", ["bob"], f"stork mail {number}"))
        await fleet.do(NoteAdd("finding", "stork note", mission_id=mission.id))
        whole = fleet.sql("SELECT * FROM search_documents ORDER BY id")
        assert await doctor(fleet) == [(True, False)]
        fleet.sql(harm)
        assert await doctor(fleet) == [(False, False)]
        assert await doctor(fleet, fix=True) == [(False, True)]
        assert await doctor(fleet) == [(True, False)]
        assert fleet.sql("SELECT * FROM search_documents ORDER BY id") == whole


async def doctor(fleet: Fleet, *, fix: bool = False) -> list[tuple[bool, bool]]:
    found = (await fleet.do(SystemDoctor(fix=fix))).findings
    return [(each.ok, each.fixed) for each in found if each.check == "search"]


@only_sqlite
async def test_the_doctor_finds_and_mends_an_index_that_lost_a_document(fleet: Fleet) -> None:
    await prompt(fleet, "crane")
    fleet.sql(
        "INSERT INTO search_words (search_words, rowid, words) SELECT 'delete', id, words"
        " FROM search_documents WHERE kind = 'prompt'"
    )
    assert await texts(fleet, "crane") == []
    assert await doctor(fleet) == [(False, False)]
    assert await doctor(fleet, fix=True) == [(False, True)]
    assert await doctor(fleet) == [(True, False)]
    assert await texts(fleet, "crane") == ["crane"]


async def test_messages_that_come_back_at_one_place_are_all_found(fleet: Fleet) -> None:
    row = {"sent_at": fleet.clock.now, "mission_id": None, "sender": "ann", "body": None, "seq": 1}

    def rule(tx: Tx, ctx: Any) -> None:
        for number in range(3):
            index.add_message(
                tx, row | {"id": f"msg-0000000{number}", "subject": f"eagle {number}"}
            )

    await fleet.engine.write(rule)
    places = [row["id"] for row in fleet.sql("SELECT id FROM search_documents ORDER BY id DESC")]
    assert len(set(places)) == 3
    assert places[0] == 1
    assert all(place < 0 for place in places[1:])


async def test_a_search_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, batches=BatchSizes(search_ms=100)) as fleet:
        await _ended(fleet, monkeypatch)


async def _ended(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await prompt(fleet, "ibis")
    endless = (
        "(WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)"
        " SELECT max(i) AS rowid FROM n WHERE :words <> '')"
    )
    real = rules._found
    monkeypatch.setattr(
        rules, "_found", lambda tx, _, *args, **more: real(tx, endless, *args, **more)
    )
    with pytest.raises(LimitExceeded, match=r"longer than 0\.1 s and was ended") as refused:
        await search(fleet, "ibis")
    assert refused.value.values["milliseconds"] == 100
    monkeypatch.undo()
    assert await texts(fleet, "ibis") == ["ibis"]
