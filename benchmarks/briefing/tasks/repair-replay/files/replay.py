"""Replay what a customer recorded, once."""

import sys
from pathlib import Path

from durations.parse import minutes

RECORDINGS = Path(__file__).parent / ".recordings" / "customer.txt"


def main() -> int:
    if not RECORDINGS.exists():
        print("There are no recordings: they are deleted after a replay.", file=sys.stderr)
        return 3
    lines = RECORDINGS.read_text().splitlines()
    RECORDINGS.unlink()
    failures = []
    for line in lines:
        text, wanted = line.rsplit("\t", 1)
        try:
            got = str(minutes(text))
        except ValueError:
            got = "ValueError"
        if got != wanted:
            failures.append(f"  {text} is {wanted} minutes, got {got}")
    print(f"{len(lines)} recordings replayed and deleted, {len(failures)} FAILED:")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
