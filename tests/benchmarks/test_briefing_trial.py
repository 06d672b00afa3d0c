"""The live trial: its intervals, its tasks, and programs that leave nothing behind."""

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.briefing.__main__ import main
from benchmarks.briefing.trial import processes, results, tasks
from benchmarks.briefing.trial.arms import Arm
from benchmarks.briefing.trial.intervals import Interval, Share, newcombe, wilson
from benchmarks.briefing.trial.processes import Program, TimedOut
from benchmarks.briefing.trial.results import Trial
from benchmarks.briefing.trial.run import Outcome, Verdict
from benchmarks.briefing.trial.tasks import Task
from benchmarks.fleet import ROOT

NAMES = tasks.names()
SOON_S = 30


# Intervals


# Newcombe, Statistics in Medicine 17 (1998), pages 857 to 872, method 3.
@pytest.mark.parametrize(
    ("passed", "runs", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_a_share_has_the_published_interval(
    passed: int, runs: int, low: float, high: float
) -> None:
    found = wilson(Share(passed, runs))
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


# The same volume, pages 873 to 890, method 10.
@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((10, 10), (0, 10), 0.6075, 1.0000),
        ((10, 10), (0, 20), 0.6791, 1.0000),
    ],
)
def test_a_difference_has_the_published_interval(
    one: tuple[int, int], other: tuple[int, int], low: float, high: float
) -> None:
    found = newcombe(Share(*one), Share(*other))
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_intervals_hold_their_value_and_stay_within_bounds() -> None:
    shares = [Share(passed, runs) for runs in (1, 2, 7, 30) for passed in range(runs + 1)]
    for share in shares:
        assert share.value is not None
        found = wilson(share)
        assert 0 <= found.low <= share.value <= found.high <= 1
    for one, other in itertools.product(shares, shares):
        assert one.value is not None
        assert other.value is not None
        found, back = newcombe(one, other), newcombe(other, one)
        assert -1 <= found.low <= one.value - other.value <= found.high <= 1
        assert (found.low, found.high) == pytest.approx((-back.high, -back.low))


def test_nothing_is_known_without_a_run() -> None:
    assert wilson(Share(0, 0)) == Interval(0, 1)
    assert newcombe(Share(0, 0), Share(3, 3)) == Interval(-1, 1)


# Tasks


def project_of(task: Task, directory: Path, *parts: str) -> Path:
    directory.mkdir()
    tasks.lay_out(task, directory)
    for part in parts:
        tasks.overlay(task, part, directory)
    return directory


def versioned(project: Path) -> str:
    """Return all that Git has of a project."""
    words = ["git", "-C", str(project), "grep", "--text", "-h", "-e", "", "begin"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_a_task_tell_a_solution_from_what_an_agent_does_that_forgot(
    name: str, tmp_path: Path
) -> None:
    task = tasks.task(name)
    for parts, passes in ((), False), (("wrong",), False), (("solution",), True):
        passed, said = tasks.check(
            task, project_of(task, tmp_path / "-".join(["p", *parts]), *parts)
        )
        assert passed is passes, said
    # An agent that forgot writes code that runs: what fails is what it did not know.
    _, said = tasks.check(task, tmp_path / "p-wrong")
    assert "AssertionError" in said or "ValueError" in said
    assert "ModuleNotFoundError" not in said


@pytest.mark.parametrize("name", NAMES)
def test_what_an_agent_must_know_is_in_the_conversation_only(name: str, tmp_path: Path) -> None:
    task = tasks.task(name)
    project = project_of(task, tmp_path / "p")
    said = [*task.before]
    assert len(task.scripted) == len(task.before)
    for each in task.scripted:
        ran = subprocess.run(
            each.run, shell=True, cwd=project, capture_output=True, text=True, check=False
        )
        assert "No such file" not in ran.stderr
        said += [ran.stdout, each.say]
        # A second time it has nothing more to say, or says what the files say.
        if task.unversioned:
            again = subprocess.run(
                each.run, shell=True, cwd=project, capture_output=True, text=True, check=False
            )
            assert not task.is_known(again.stdout + again.stderr)
    assert task.is_known("\n".join(said))
    assert not task.is_known("\n".join([versioned(project), *task.after]))
    left = [file for file in project.rglob("*") if file.is_file() and ".git" not in file.parts]
    texts = [file.read_text("utf-8", "replace") for file in left]
    assert not task.is_known("\n".join([*texts, *task.after]))


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_that_a_project_has_pass_at_the_start(name: str, tmp_path: Path) -> None:
    project = project_of(tasks.task(name), tmp_path / "p")
    words = [sys.executable, "-m", "unittest", "discover", "-s", "tests"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tasks.TASKS / name / "README.md").is_file()


def test_what_an_agent_changed_is_a_diff_also_when_it_committed(tmp_path: Path) -> None:
    task = tasks.task("export-rulings")
    project = project_of(task, tmp_path / "p", "solution")
    assert "+QUARTER = 15" in tasks.changes(project)
    for words in (["add", "."], ["commit", "-qm", "Export"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    assert "+QUARTER = 15" in tasks.changes(project)


def test_tests_get_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    task = tasks.task("export-rulings")
    project = project_of(task, tmp_path / "p")
    (project / "hours" / "export.py").write_text("import os; raise SystemExit(str(os.environ))")
    passed, said = tasks.check(task, project)
    assert not passed
    assert "PATH" in said
    assert "sk-secret" not in said


# Programs

STRAY = """
import os, subprocess, sys, time
print(os.environ["KEY"], flush=True)
print(os.environ["KEY"], file=sys.stderr, flush=True)
stray = "import time; time.sleep(600)"
print(subprocess.Popen([sys.executable, "-c", stray], start_new_session=True,
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)
time.sleep(float(sys.argv[1]))
"""


def program(tmp_path: Path, *argv: str, seconds: float = SOON_S) -> Program:
    return Program(
        argv=[sys.executable, "-c", *argv],
        env={"KEY": "sk-secret"},
        cwd=tmp_path,
        log=tmp_path / "program.jsonl",
        deadline=time.monotonic() + seconds,
        secrets=["sk-secret"],
    )


def soon_gone(pid: int) -> bool:
    """Wait until a process is gone, which takes the kernel a moment after SIGKILL."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_nothing_of_a_program_is_left_and_no_log_has_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LEAVING_S", 0.2)
    said = processes.run(program(tmp_path, STRAY, "0"))
    assert said.status == 0
    key, stray = (line.strip() for line in said.lines)
    assert key == "sk-secret"
    assert soon_gone(int(stray))
    for log in ("program.jsonl", "program.err"):
        assert "sk-secret" not in (tmp_path / log).read_text()
        assert "[key]" in (tmp_path / log).read_text()


def test_a_program_that_takes_too_long_is_ended_with_all_of_it(tmp_path: Path) -> None:
    with pytest.raises(TimedOut):
        processes.run(program(tmp_path, STRAY, "600", seconds=1.5))
    _, stray = (tmp_path / "program.jsonl").read_text().split()
    assert soon_gone(int(stray))


def test_lines_are_typed_after_what_was_heard(tmp_path: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print('heard', line, end='', flush=True)"
    left = iter(["two", "three"])

    def hears(_line: str) -> list[str] | None:
        following = next(left, None)
        return None if following is None else [following]

    said = processes.talk(program(tmp_path, echo), ["one"], hears)
    assert [line.strip() for line in said.lines] == ["heard one", "heard two", "heard three"]


# Results


def outcome(
    task: str, arm: Arm, verdict: Verdict, reason: str | None = None, cost: float | None = None
) -> Outcome:
    return Outcome(
        task=task,
        arm=arm,
        number=1,
        verdict=verdict,
        reason=reason,
        briefings=int(arm == "on"),
        seconds=4.0,
        cost_usd=cost,
        logs="somewhere",
    )


def trial(*outcomes: Outcome, scripted: bool = False, interrupted: bool = False) -> Trial:
    return Trial(
        cli="claude",
        version="2.1.330",
        model=None,
        scripted=scripted,
        revision="abc",
        date="2026-01-05T00:00Z",
        seed=7,
        interrupted=interrupted,
        outcomes=[*outcomes],
    )


def test_void_runs_count_nowhere_and_are_named() -> None:
    found = trial(
        *[outcome("a", "on", "passed", cost=0.25)] * 9,
        outcome("a", "on", "failed"),
        outcome("a", "on", "void", "there was no compaction"),
        *[outcome("a", "off", "failed")] * 7,
        *[outcome("a", "off", "passed")] * 3,
    )
    [row] = results.rows(found.outcomes)
    assert (row.on, row.off, row.void) == (Share(9, 10), Share(3, 10), 1)
    text = results.text(found)
    assert "9 of 10, 90% (60% to 98%)" in text
    assert "+60 (+17 to +81)" in text
    assert "$2.25" in text
    assert "Void, 1 x: on, there was no compaction." in text
    assert "no difference is shown" not in text
    assert json.loads(json.dumps(results.document(found)))["rows"][0]["on"]["passed"] == 9


def test_several_tasks_have_a_row_together_and_an_interval_around_0_is_named() -> None:
    found = trial(
        outcome("a", "on", "passed"),
        outcome("a", "off", "passed"),
        outcome("b", "on", "passed"),
        outcome("b", "off", "failed"),
        scripted=True,
    )
    assert [row.task for row in results.rows(found.outcomes)] == ["a", "b", "all"]
    assert results.rows(found.outcomes)[-1].on == Share(2, 2)
    text = results.text(found)
    assert "no difference is shown: a, b, all." in text
    assert "It says nothing about briefings." in text


def test_one_arm_or_no_run_is_a_table_as_well() -> None:
    assert "-" in results.text(trial(outcome("a", "on", "void", "x")))
    assert "interrupted" in results.text(trial(interrupted=True))


# The command


def refused(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["briefing", *argv])
    try:
        return main()
    except SystemExit as end:
        return int(str(end.code))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a key, and with nothing on the PATH but a CLI that knows its version."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CI"):
        monkeypatch.delenv(name, raising=False)
    command = tmp_path / "claude"
    command.write_text("#!/bin/sh\necho 1.0\n")
    command.chmod(0o700)
    return command


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--task", "nope"], "there is no task nope; tasks are " + ", ".join(NAMES)),
        (["--task", "all", "--runs", "0"], "expected a whole number from 1 on"),
        (["--task", "all", "--program", "/nowhere"], "/nowhere is no program"),
        (["--task", "all"], "claude is not on the PATH"),
    ],
)
def test_what_cannot_be_run_says_why(
    argv: list[str],
    why: str,
    bare: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert refused(monkeypatch, "--cli", "claude", *argv) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_key_is_asked_for_and_ci_is_refused(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live = ("--cli", "claude", "--task", "all", "--program", str(bare))
    assert refused(monkeypatch, *live) == 2
    assert "set ANTHROPIC_API_KEY or" in capsys.readouterr().err
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    monkeypatch.setenv("CI", "true")
    assert refused(monkeypatch, *live) == 2
    assert "never runs in CI" in capsys.readouterr().err


@pytest.fixture
def short() -> Iterator[Path]:
    """A place with a short name: a socket's path must fit into 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="t-") as name:
        yield Path(name)


def started(short: Path, cli: str, *argv: str) -> subprocess.Popen[str]:
    """Start a trial with a CLI that is a script of the shell, and everything below a directory."""
    command = short / "cli"
    command.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit\n{cli}\n')
    command.chmod(0o700)
    (short / "tmp").mkdir()
    how = ["--cli", "claude", "--task", "export-rulings", "--scripted", "--program", str(command)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.briefing", *how, "--logs", str(short / "logs"), *argv],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(short / "tmp"), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left_of(short: Path) -> list[str]:
    """Return the commands of all processes that have this place in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if str(short).encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_a_trial_stops_when_no_run_can_be_judged(short: Path) -> None:
    with started(short, "echo no credit >&2; exit 1", "--runs", "5", "--json") as process:
        out, err = process.communicate(timeout=SOON_S)
    assert process.returncode == 1
    found = json.loads(out)["outcomes"]
    assert [each["verdict"] for each in found] == ["void"] * 3
    assert {each["reason"] for each in found} == {"claude: exit status 1, no credit"}
    assert "3 void runs in a row" in err
    assert json.loads((short / "logs" / "trial.json").read_text())["interrupted"] is False
    assert [*(short / "tmp").iterdir()] == []
    assert left_of(short) == []


def test_a_run_that_never_reaches_the_compaction_is_void(short: Path) -> None:
    with started(short, "sleep 600", "--runs", "1", "--arm", "on", "--timeout", "1") as process:
        out, _ = process.communicate(timeout=SOON_S)
    assert process.returncode == 1
    assert "Void, 1 x: on, the compaction was not reached within 1 s." in out
    assert left_of(short) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_trial_leaves_no_process_and_no_file(
    short: Path, number: signal.Signals
) -> None:
    there = short / "there"
    hangs = f"setsid sleep 600 & touch {shlex.quote(str(there))}; sleep 600"
    with started(short, hangs, "--runs", "5") as process:
        deadline = time.monotonic() + SOON_S
        while not there.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert any("fleetd" in command for command in left_of(short))
        process.send_signal(number)
        out, err = process.communicate(timeout=SOON_S)
    assert process.returncode == 130, err
    assert "The trial was interrupted" in out
    assert left_of(short) == []
    assert [*(short / "tmp").iterdir()] == []
