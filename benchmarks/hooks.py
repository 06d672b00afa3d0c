"""What an agent waits for at every step: the whole process of a hook, from exec to exit."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fleetctl

from .bench import NOTHING_TO_DO, Bench
from .fleet import Fleet
from .references import starting
from .rows import Promise, Row

CLIENT = Path(fleetctl.__file__).with_name("hook.py")
AT_ONCE = 8
EDIT_BYTES = 500_000
# As hooks are installed: nothing of the environment, nothing of site-packages.
ALONE = ("-I", "-S")


class Session:
    """A session of an agent CLI; no two of its calls say the same, as in life."""

    def __init__(self, fleet: Fleet, python: str) -> None:
        self._fleet = fleet
        self._command = [python, *ALONE, str(CLIENT), "claude"]
        self._number = itertools.count(1)
        self._told = 0

    def call(self, size: int = 0) -> None:
        """Run one hook after an edit of so many bytes."""
        subprocess.run(
            self._command,
            input=self._payload(size),
            stdout=subprocess.DEVNULL,
            env=self._fleet.env,
            check=True,
        )

    def call_at_once(self) -> None:
        """Run eight hooks side by side."""
        processes = [
            subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=self._fleet.env,
            )
            for _ in range(AT_ONCE)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(self._payload(0))
            process.stdin.close()
        for process in processes:
            process.wait()

    def check(self) -> None:
        """Refuse to count what the daemon did not take: the spool would be faster."""
        heard = self._fleet.call("hook.status")
        taken = sum(each["deliveries"] - each["from_spool"] for each in heard["harnesses"])
        if taken != self._told or heard["spool"]["files"]:
            raise RuntimeError(f"{self._told} hooks were called, the daemon took {taken} of them")

    def _payload(self, size: int) -> bytes:
        self._told += 1
        file = str(self._fleet.directory / "edited.py")
        content = '    return True, "and a quoted line"\n' * (size // 38)
        payload = {
            "session_id": "5d1c4c0e-bench",
            "transcript_path": "/c/projects/p/5d1c4c0e-bench.jsonl",
            "cwd": str(self._fleet.directory),
            "hook_event_name": "PostToolUse",
            "tool_name": "Write",
            "tool_input": {"file_path": file, "content": content},
            "tool_response": {"filePath": file, "success": True},
            "tool_use_id": f"toolu_{next(self._number)}",
        }
        return json.dumps(payload).encode()


def whole_processes(bench: Bench) -> Iterator[Row]:
    """Measure hooks alone and side by side, beside an interpreter that does nothing."""
    session = Session(bench.fleet, bench.python)
    session.call()
    promised = Promise(ratio=1)
    yield bench.beside_python("hook, whole process", session.call, runs=200, promise=promised)
    yield bench.beside(
        "hook, beside an interpreter with its flags",
        session.call,
        starting(bench.python, *ALONE, *NOTHING_TO_DO),
        runs=100,
        reference="python -I -S -c pass",
    )
    yield bench.beside_python(
        "hook, a payload of 500 KB", lambda: session.call(EDIT_BYTES), runs=100
    )
    yield bench.beside(
        f"hook, {AT_ONCE} at once",
        session.call_at_once,
        lambda: _at_once(bench.python),
        runs=50,
        promise=promised,
        reference=f"{AT_ONCE} at once",
    )
    session.check()


def _at_once(python: str) -> None:
    bare = [python, *NOTHING_TO_DO]
    processes = [subprocess.Popen(bare, stdin=subprocess.DEVNULL) for _ in range(AT_ONCE)]
    for process in processes:
        process.wait()
