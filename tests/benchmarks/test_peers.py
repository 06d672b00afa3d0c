"""Peers: what is asked of them, what becomes of those that are missing or break."""

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.peers import environments
from benchmarks.peers.beside import Peers
from benchmarks.peers.environments import PEERS, Peer, make

PROGRAM = """
import sys
from benchmarks.peers.programs.serving import serve, timed

def begin(directory):
    print("Welcome!")
    return {"version": "1.0", "way": "in process", "journal_mode": "wal", "synchronous": "FULL"}

def keep(runs, state):
    if state == "bad":
        sys.exit("the disk is on fire")
    return timed(lambda _: None, runs)

serve(begin, {"keep": keep})
"""


class Scripted(Peer, frozen=True):
    """A peer that is a file."""

    def command(self) -> list[str]:
        return [sys.executable, self.program]

    def missing(self) -> str | None:
        return None


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    return Scripted("a peer", "", None, str(program))


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    peers = Peers(tmp_path / "files", random.Random(1), wanted=True)
    (tmp_path / "files").mkdir()
    yield peers
    peers.close()


def ours(calls: list[str], what: str) -> Callable[[], None]:
    return lambda: calls.append(what)


def test_a_peer_and_we_do_the_same_work_equally_often(peers: Peers, peer: Peer) -> None:
    calls: list[str] = []
    run, settle = ours(calls, "run"), ours(calls, "settle")
    (row,) = peers.beside(peer, "path", run, "keep", does="put", runs=10, settle=settle, state="s")
    assert calls == ["run", "settle"] * 10
    assert (row.name, row.reference, row.runs) == ("path", "a peer", 10)
    assert row.reference_p50_ms > 0
    assert row.peer is not None
    assert row.peer.text() == "1.0 put, in process, wal, synchronous=FULL"
    assert peers.absent == {}


def test_a_peer_that_breaks_is_absent_and_not_asked_again(peers: Peers, peer: Peer) -> None:
    calls: list[str] = []
    run = ours(calls, "run")
    for state in ("bad", "good"):
        assert peers.beside(peer, "path", run, "keep", does="put", runs=5, state=state) == []
    assert peers.absent == {"a peer": "the disk is on fire"}
    assert calls in ([], ["run"])  # chance decides which of the two comes first


def test_peers_that_nobody_wants_are_not_started(tmp_path: Path, peer: Peer) -> None:
    peers = Peers(tmp_path, random.Random(1), wanted=False)
    assert peers.facts(peer) is None
    assert peers.absent == {}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let environments be made elsewhere, by tools that are not there."""
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    monkeypatch.setattr(environments.sys, "executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_what_cannot_be_installed_says_why(place: Path) -> None:
    for peer in PEERS:
        if peer.requirements is not None:
            assert peer.missing() == "not installed: `make bench` does that"
            why = make(peer)
            assert why is not None
            assert why.startswith("not installed: ")
            assert peer.missing() == why


def test_an_environment_is_made_once_for_what_is_required(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(environments, "_run", commands.append)
    for _ in range(2):
        assert make(environments.LANGGRAPH) is None
    assert [command[1:3] for command in commands] == [["-m", "venv"], ["-m", "pip"]]
    assert environments.LANGGRAPH.missing() is None


def test_what_peers_need_is_given_with_a_lower_bound_and_no_index() -> None:
    for peer in PEERS:
        if peer.requirements is not None:
            text = (environments.HERE / peer.requirements).read_text()
            assert ">=" in text
            assert "index" not in text
