"""A peer as a process, with one line of JSON per request and answer; must not know the work."""

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from .environments import ROOT, Peer

ANSWER_S = 120.0
END_S = 10.0


class Broken(Exception):
    """The peer ended or did not answer; the text has its last output."""


class PeerProcess:
    """A running peer, whose files are all in ``directory``."""

    def __init__(self, peer: Peer, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._words = directory / "said.log"
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                peer.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                cwd=directory,
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "HOME": str(directory),
                    "PYTHONPATH": str(ROOT),
                },
            )
        self._received = b""

    def ask(self, work: str, **inputs: Any) -> dict[str, Any]:
        """Request a piece of work and return its answer; raises Broken."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"work": work, **inputs}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._broken() from None
        return dict(json.loads(self._line()))

    def close(self) -> None:
        """Let it end by itself, or kill it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            self._process.stdout.close()

    def _line(self) -> bytes:
        """Return the next line that is JSON: some libraries print a greeting on stdout."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + ANSWER_S
        while True:
            line, found, rest = self._received.partition(b"\n")
            if found:
                self._received = rest
                if line.startswith(b"{"):
                    return line
                continue
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([descriptor], [], [], left)
            received = os.read(descriptor, 1 << 16) if ready else b""
            if not received:
                raise self._broken()
            self._received += received

    def _broken(self) -> Broken:
        lines = self._words.read_text(errors="replace").strip().splitlines()
        return Broken(lines[-1] if lines else f"no answer within {ANSWER_S:g} s")
