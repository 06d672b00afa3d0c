"""The guided tour: what it shows, what it leaves behind, and that it notices what is wrong."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fleetctl import cli
from fleetctl.demo import agents, checks, project, sandbox, tour
from fleetctl.demo.checks import FinalState, Verdict

ROOT = str(Path(cli.__file__).parents[1])
LONGEST_S = 120


@dataclass
class Place:
    """Where a demo may put its directory, and nothing else does."""

    temp: Path
    env: dict[str, str]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start the demo."""
        return subprocess.Popen(
            [sys.executable, "-m", "fleetctl", "demo", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
            cwd=self.temp.parent,
        )

    def left(self) -> list[Path]:
        """Return what is in the directory."""
        return list(self.temp.iterdir())

    def processes(self) -> list[str]:
        """Return the command lines of processes whose environment names the directory."""
        needle = f"FLEET_SOCKET={self.temp}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if needle in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


@pytest.fixture
def place() -> Iterator[Place]:
    """Return an empty directory for temporary files, with a home that must stay empty.

    Its name is short: where a socket's path would be too long the demo goes elsewhere.
    """
    with tempfile.TemporaryDirectory(prefix="fd-") as directory:
        temp, home = Path(directory) / "t", Path(directory) / "home"
        temp.mkdir()
        home.mkdir()
        env = {**os.environ, "TMPDIR": str(temp), "HOME": str(home), "PYTHONPATH": ROOT}
        yield Place(temp, env)


def test_the_demo_loses_an_agent_gets_its_work_back_and_leaves_nothing(place: Place) -> None:
    demo = place.start()
    out, err = demo.communicate(timeout=LONGEST_S)

    assert demo.returncode == 0, out + err
    assert err == ""
    for text, _ in checks.CHECKS:
        assert f"ok      {text}" in out
    assert "FAILED  " not in out
    assert place.left() == []
    assert place.processes() == []
    assert list((place.temp.parent / "home").iterdir()) == []


def test_the_demo_shows_the_product_as_a_person_would_use_it(place: Place) -> None:
    demo = place.start()
    out, _ = demo.communicate(timeout=LONGEST_S)

    for command in (
        "status",
        "checkpoint list",
        "resume --dry-run --agent specialist-3 --take-over-from specialist-2",
        "resume --yes --agent specialist-3 --take-over-from specialist-2",
    ):
        assert f"$ fleetctl {command}" in out
    assert "[DRY RUN] Would restore:" in out
    assert "- You took over from specialist-2" in out
    assert f": “{project.RULING}”" in " ".join(out.split())
    assert "- python -m unittest tests.test_syllables of specialist-2 failed just now" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100


def test_as_json_the_demo_prints_one_document_and_tells_its_story_on_stderr(place: Place) -> None:
    demo = place.start("--json")
    out, err = demo.communicate(timeout=LONGEST_S)

    document = json.loads(out)
    assert document["ok"] is True
    assert [check["check"] for check in document["checks"]] == [text for text, _ in checks.CHECKS]
    assert "== The recovery" in err


def test_keep_leaves_the_directory_for_a_look(place: Place) -> None:
    demo = place.start("--keep")
    out, _ = demo.communicate(timeout=LONGEST_S)

    (directory,) = place.left()
    assert f"The directory stays: {directory}" in " ".join(out.split())
    assert (directory / "data" / "squawk.db").stat().st_size > 0
    assert place.processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing(place: Place, number: signal.Signals) -> None:
    demo = place.start()
    assert demo.stdout is not None
    for line in demo.stdout:
        if "joins as specialist" in line:
            break
    demo.send_signal(number)
    demo.communicate(timeout=LONGEST_S)

    assert demo.returncode == 130
    assert place.left() == []
    assert place.processes() == []


def test_an_agent_that_fails_ends_the_demo_with_its_words_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = sandbox.Stage.start_agent

    def with_a_wrong_option(self: sandbox.Stage, program: str, name: str, *arguments: str) -> int:
        return start(self, program, name, *arguments, "planted")

    monkeypatch.setattr(sandbox.Stage, "start_agent", with_a_wrong_option)
    monkeypatch.setattr("tempfile.tempdir", str(place.temp))

    assert tour.run(Namespace(keep=False, json=False)) == 1

    out = capsys.readouterr().out
    assert "FAILED  the demo runs to its end" in out
    assert "dispatch-1 ended with status 1" in out
    assert "TypeError: dispatch() takes 2 positional arguments" in " ".join(out.split())
    assert place.left() == []
    assert place.processes() == []


@pytest.fixture(scope="module")
def good() -> FinalState:
    """Return the final state of a real run."""
    kept: list[FinalState] = []
    with pytest.MonkeyPatch.context() as patch:
        examine = checks.examine

        def keeping(found: FinalState) -> object:
            kept.append(found)
            return examine(found)

        patch.setattr("fleetctl.demo.tour.examine", keeping)
        assert tour.run(Namespace(keep=False, json=True)) == 0
    return kept[0]


def failed(found: FinalState) -> list[str]:
    return [verdict.check for verdict in checks.examine(found) if not verdict.ok]


def seen(field: str) -> Callable[[FinalState], FinalState]:
    """Return a change after which the operator has not seen something."""

    def change(good: FinalState) -> FinalState:
        return replaced(good, seen=replaced(good.seen, **{field: False}))

    return change


def replaced(record: Any, **changes: object) -> Any:
    return msgspec.structs.replace(record, **changes)


def test_nothing_is_wrong_with_a_good_ending(good: FinalState) -> None:
    assert failed(good) == []


def unfinished_sortie(good: FinalState) -> FinalState:
    first, *others = good.sorties
    return replaced(good, sorties=[replaced(first, status="in_progress"), *others])


def completed_twice(good: FinalState) -> FinalState:
    event = next(e for e in good.events if e.type == "sortie_completed")
    return replaced(good, events=[*good.events, event])


def reopened(good: FinalState) -> FinalState:
    sortie = {"sortie_id": good.sorties[0].id, "status": "in_progress"}
    event = replaced(good.events[-1], type="sortie_restored", data=sortie)
    return replaced(good, events=[*good.events, event])


def false_credit(good: FinalState) -> FinalState:
    *others, last = good.sorties
    return replaced(good, sorties=[*others, replaced(last, assigned_to="somebody")])


def done_by_another(good: FinalState) -> FinalState:
    def credited(name: str | None) -> str | None:
        return project.FIRST if name == project.SUCCESSOR else name

    events = [replaced(event, agent_id=credited(event.agent_id)) for event in good.events]
    sorties = [replaced(each, assigned_to=credited(each.assigned_to)) for each in good.sorties]
    return replaced(good, events=events, sorties=sorties)


def open_mission(good: FinalState) -> FinalState:
    return replaced(good, mission=replaced(good.mission, status="in_progress"))


def no_final_checkpoint(good: FinalState) -> FinalState:
    return replaced(good, checkpoints=good.checkpoints[1:])


def no_file(good: FinalState) -> FinalState:
    return replaced(good, files=frozenset())


def two_recoveries(good: FinalState) -> FinalState:
    event = next(e for e in good.events if e.type == "fleet_recovered")
    return replaced(good, events=[*good.events, event])


def forgotten_lock(good: FinalState) -> FinalState:
    lock = msgspec.convert(
        {"id": "lck-1", "file": "a", "held_by": "b", "acquired_at": "", "timeout_ms": 1},
        checks.Lock,
    )
    return replaced(good, locks=[lock])


def unread_message(good: FinalState) -> FinalState:
    first, *others = good.messages
    delivery = replaced(first.deliveries[0], status="queued")
    return replaced(good, messages=[replaced(first, deliveries=[delivery]), *others])


def living_dead(good: FinalState) -> FinalState:
    agents = [replaced(agent, status="gone") for agent in good.agents]
    return replaced(good, agents=agents)


@pytest.mark.parametrize(
    ("doctor", "noticed"),
    [
        (unfinished_sortie, "every sortie was completed exactly once"),
        (completed_twice, "every sortie was completed exactly once"),
        (reopened, "no finished sortie was opened again"),
        (false_credit, "finished sorties stay with the agent that did them"),
        (done_by_another, "the successor finished what the killed agent left"),
        (open_mission, "the mission is completed at 100%"),
        (no_final_checkpoint, "checkpoints at 25, 50, 75 and 100%, one each"),
        (no_file, "every checkpoint has its file, all checksums match"),
        (two_recoveries, "there was one recovery"),
        (forgotten_lock, "no lock is left"),
        (unread_message, "every message is acknowledged"),
        (living_dead, "the killed agent is lost, the others left in order"),
        (seen("tests_pass"), "every unit test passes; at the beginning they failed"),
        (seen("tests_failed_before"), "every unit test passes; at the beginning they failed"),
        (seen("all_committed"), "everything is committed"),
        (seen("checkpoints_intact"), "every checkpoint has its file, all checksums match"),
        (seen("stale_token_refused"), "the killed agent's fencing token is refused"),
        (seen("new_token_accepted"), "the killed agent's fencing token is refused"),
    ],
)
def test_a_wrong_ending_is_noticed(
    good: FinalState, doctor: Callable[[FinalState], FinalState], noticed: str
) -> None:
    assert failed(doctor(good)) == [noticed]


def test_a_failed_check_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(_: object) -> list[Verdict]:
        return [Verdict(check="planted", ok=False, detail="because")]

    monkeypatch.setattr("fleetctl.demo.tour.Tour.play", play)

    assert tour.run(Namespace(keep=False, json=False)) == 1
    out = capsys.readouterr().out
    assert "FAILED  planted\n            because" in out
    assert "0 of 1 checks are ok" in out


def test_without_git_the_demo_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")

    assert tour.run(Namespace(keep=False, json=True)) == 1
    assert "git is not installed" in json.loads(capsys.readouterr().out)["checks"][0]["detail"]


def test_a_prompt_without_a_mission_is_no_briefing() -> None:
    with pytest.raises(ValueError, match="names no mission"):
        agents.read("Hello")


def test_the_half_written_file_cannot_be_finished_without_the_ruling() -> None:
    piece = project.piece_of(f"{project.PACKAGE}/{project.HALF_DONE}.py")
    begun = project.half(piece)

    with pytest.raises(project.NoRuling):
        project.rest(piece, begun, mail="")
    with pytest.raises(ValueError, match="does not go on"):
        project.rest(piece, "something else", mail=project.RULING)
    assert begun + project.rest(piece, begun, mail=project.RULING) == piece.code
