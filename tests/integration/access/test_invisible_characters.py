"""What nobody sees is dropped from texts and written as an escape in paths, wherever it is read."""

import io
import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl import cli
from fleetctl.client import Fleet as Client
from fleetctl.output import console
from fleetctl.tui import cells
from fleetd.domain.redaction.redact import redact
from fleetd.engine.hooks.deliver import _locked
from fleetd.host.trace import LineFormatter
from fleetd.protocol.display import clean, clean_block, escaped, path, quote, short, verbatim
from fleetd.protocol.records import Lock
from fleetd.protocol.requests.agent import AgentNote
from fleetd.protocol.requests.event import EventAppend
from fleetd.protocol.requests.lock import LockAcquire
from fleetd.protocol.requests.mission import MissionCreate, MissionStart, NewSortie
from fleetd.protocol.requests.recovery import RecoveryContextGet
from fleetd.protocol.requests.sortie import SortieStart
from tests.mcp.conftest import Start
from tests.support.fleet import Fleet
from tests.support.processes import Daemon, Result

# Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), written down on its own.
RANGES = """
00AD 034F 061C 115F..1160 17B4..17B5 180B..180F 200B..200F 202A..202E 2060..206F 3164 FE00..FE0F
FEFF FFA0 FFF0..FFF8 1BCA0..1BCA3 1D173..1D17A E0000..E0FFF
"""
ENDS = [[int(end, 16) for end in each.split("..")] for each in RANGES.split()]
INVISIBLE = [chr(code) for ends in ENDS for code in range(ends[0], ends[-1] + 1)]
SOME = "\u200b\u200e\u200f\u061c\u3164\u034f\U000e0100\u00ad\ufe0f"
WORDS = f"in{SOME}visible"
FILE = f"/p/a{SOME}b.py"
SHOWN_FILE = r"/p/a\u200b\u200e\u200f\u061c\u3164\u034f\U000e0100\xad\ufe0fb.py"


def unseen(text: str) -> set[str]:
    return set(text) & set(INVISIBLE)


def test_the_set_is_unicodes_own() -> None:
    assert len(INVISIBLE) == 4_174
    formats = {chr(n) for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)) == "Cf"}
    # Some signs of Arabic, Syriac, Kaithi and Egyptian, and annotations, are formats that are seen.
    assert len(formats - set(INVISIBLE)) < 40


@pytest.mark.parametrize(
    "shown",
    [clean, clean_block, short, quote, verbatim, console.clean, console.clean_block, cells.shown],
    ids=lambda each: f"{each.__module__}.{each.__name__}",
)
def test_every_invisible_character_is_dropped_from_a_text(shown: Callable[[str], str]) -> None:
    assert unseen(shown("a" + "a".join(INVISIBLE) + "a")) == set()
    assert shown(WORDS) == shown("invisible")


@pytest.mark.parametrize(
    "shown", [path, console.path, escaped], ids=["briefing", "terminal", "all"]
)
def test_every_invisible_character_of_a_path_is_escaped(shown: Callable[[str], str]) -> None:
    for char in (*INVISIBLE, "\x1b", "\n", "\x9b", "\u2028", "\ud800"):
        told = shown(f"a{char}b")
        assert told.isascii(), ascii(char)
        assert told != "ab"
    assert shown("/p/ä b/ü-漢字.py") == "/p/ä b/ü-漢字.py"


def test_json_says_the_same_and_shows_what_nobody_sees() -> None:
    every = "".join(INVISIBLE)
    told = console.to_json({"text": every})
    assert unseen(told) == set()
    assert json.loads(told) == {"text": every}


def test_the_log_escapes_it() -> None:
    import logging

    record = logging.LogRecord("fleetd", logging.INFO, "", 0, WORDS, (), None)
    assert r"in\u200b\u200e" in LineFormatter(redact).format(record)


def test_the_refusal_of_an_edit_names_the_file_as_it_is() -> None:
    lock = Lock(
        id="lck-1", file=FILE, held_by="bob", acquired_at="now", timeout_ms=1, purpose=WORDS
    )
    told = _locked(FILE, lock, "bob", "alice")
    assert unseen(told) == set()
    assert told.startswith(f"{SHOWN_FILE} is locked by bob")
    assert f"lock acquire $'{SHOWN_FILE}' --agent alice" in told
    odd = "/p/it's \\ \u200b"
    word = _locked(odd, lock, "bob", "alice").partition("acquire ")[2].partition(" --agent")[0]
    said = subprocess.run(
        ["bash", "-c", f"printf %s {word}"],
        env={"LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
    )
    assert said.stdout.decode() == odd


async def invisible_words(fleet: Fleet, here: str) -> str:
    sortie = NewSortie(WORDS, WORDS, [FILE], "alice")
    made = await fleet.do(MissionCreate(WORDS, WORDS, project_dir=here, sorties=[sortie]))
    mission = await fleet.do(MissionStart(made.id))
    await fleet.agents(mission, "alice", "bob")
    [first] = await fleet.sorties(mission)
    await fleet.do(SortieStart(first.id, "alice"))
    for agent in ("alice", "bob"):
        await fleet.do(AgentNote(agent, WORDS, [WORDS], [WORDS]))
        told = {"prompt": WORDS, "file": FILE, "command": WORDS, "result": "FAIL", "error": WORDS}
        for kind in ("prompt_submitted", "file_modified", "command_finished"):
            await fleet.do(EventAppend(kind, mission.id, agent, told))
    await fleet.do(LockAcquire("alice", FILE, mission_id=mission.id, purpose=WORDS))
    await fleet.write(mission, ["alice"], WORDS, body=WORDS)
    return mission.id


async def test_a_briefing_has_no_invisible_characters(fleet: Fleet) -> None:
    mission_id = await invisible_words(fleet, str(fleet.project))
    for agent in ("alice", None):
        prompt = (await fleet.do(RecoveryContextGet(mission_id, agent))).prompt
        assert unseen(prompt) == set()
        assert "invisible" in prompt
        assert f"### Files Modified\n- {SHOWN_FILE}" in prompt
        holder = "alice holds" if agent is None else "You hold"
        assert f"\n- {holder} {SHOWN_FILE}" in prompt


async def test_answers_of_tools_have_no_invisible_characters(near: Start, fleet: Fleet) -> None:
    await invisible_words(fleet, str(Path.cwd()))
    async with near("carol") as agent:
        texts = [await agent.does(each) for each in ("mission", "briefing", "agents")]
        texts.append(await agent.does("locks", file=FILE))
        texts.append(await agent.fails("lock", file=FILE))
    for text in texts:
        assert unseen(text) == set()
    assert sum(SHOWN_FILE in text for text in texts) == 4


SHOWN = (
    "status",
    "mission show",
    "mission timeline",
    "sortie list",
    "sortie show {sortie}",
    "agent show a",
    "lock list",
    "mail inbox a",
    "events",
    "checkpoint",
    "checkpoints diff",
    "context",
    "context --agent a",
)


@pytest.mark.parametrize("how", ["plain", "json"])
def test_commands_print_no_invisible_characters(
    daemon: Daemon, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(daemon.socket) as client:

        def call(method: str, **given: Any) -> Any:
            return client.call_raw(method, given)

        here = str(Path.cwd())
        mission = call("mission.create", title=WORDS, project_dir=here)["id"]
        call("mission.start", mission_id=mission)
        call("agent.register", agent_id="a", role="specialist", mission_id=mission, cwd=FILE)
        sortie = call("sortie.create", mission_id=mission, title=WORDS, files=[FILE])["id"]
        call("sortie.start", sortie_id=sortie, agent_id="a")
        call("agent.note", agent_id="a", last_action=WORDS, next_steps=[WORDS])
        call("lock.acquire", file=FILE, agent_id="a", mission_id=mission, purpose=WORDS)
        call("message.send", **{"from": "b"}, to=["a"], subject=WORDS, body=WORDS)

    def run(*argv: str) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            status = cli.main(argv)
        return Result(status, out.getvalue(), err.getvalue())

    escapes = 0
    for words in SHOWN:
        said = run(*words.format(sortie=sortie).split(), *(["--json"] if how == "json" else []))
        assert said.status == 0, said.err
        assert unseen(said.out + said.err) == set(), words
        escapes += SHOWN_FILE in said.out
    assert how == "json" or escapes >= 6


def test_fleetd_echoes_no_escape_of_its_arguments() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetd", "--config", "\x1b[31m", "--log-level", "\u200b\x9b"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert not {"\x1b", "\x9b", "\u200b"} & set(done.stderr)
    done = subprocess.run(
        [sys.executable, "-m", "fleetd", "--config", "\x1b[31m"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert r"unrecognized arguments: --config \x1b[31m" in done.stderr
