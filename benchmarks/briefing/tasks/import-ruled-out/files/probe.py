"""Read the logger once in one way, and count what came."""

import sys
from pathlib import Path

ANSWERS = Path(__file__).parent / ".logger"


def main() -> int:
    ways = ("all", "stream", "page")
    if len(sys.argv) != 2 or sys.argv[1] not in ways:
        print(f"usage: probe.py {{{','.join(ways)}}}", file=sys.stderr)
        return 2
    answer = ANSWERS / f"{sys.argv[1]}.txt"
    if not answer.exists():
        print("The logger was probed in this way before; it allows that once.", file=sys.stderr)
        return 3
    text = answer.read_text()
    answer.unlink()
    print(text, end="")
    return 1 if "LOST" in text else 0


if __name__ == "__main__":
    sys.exit(main())
