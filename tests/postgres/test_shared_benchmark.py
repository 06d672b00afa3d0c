"""The benchmark of shared stores: that it measures everything that its page shows."""

import subprocess
import sys
from pathlib import Path

import msgspec

from benchmarks.shared.page import Shared

ROOT = Path(__file__).parents[2]


def test_it_measures_everything(tmp_path: Path) -> None:
    kept = tmp_path / "shared.json"
    command = [sys.executable, "-m", "benchmarks.shared", "--quick", "--json", str(kept)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    shared = msgspec.json.decode(kept.read_bytes(), type=Shared)
    assert {each.daemons for each in shared.crowds} == {1, 2}
    assert all(each.per_s > 0 for each in shared.crowds)
    assert [each.delay_ms for each in shared.distances] == [0.0, 0.5]
    assert [each.delay_ms for each in shared.spreads] == [0.0, 0.5]
    assert all(
        min(each.crowd.per_s, each.cpu["server"], each.cpu["daemons"]) > 0
        for each in shared.spreads
    )
    # Nothing is answered without asking the server.
    assert all(trips >= 1 for trips in shared.distances[0].trips.values())
