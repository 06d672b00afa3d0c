"""Fails when the tests cover less than the floor: 95 % of lines, 90 % of branches."""

import json
import sys
from pathlib import Path

FLOORS = {"lines": 95.0, "branches": 90.0}


def main() -> int:
    """Compare the report named on the command line with the floors and say what is missing."""
    report = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    totals = report["totals"]
    reached = {
        "lines": 100 * totals["covered_lines"] / totals["num_statements"],
        "branches": 100 * totals["covered_branches"] / totals["num_branches"],
    }
    told = ", ".join(
        f"{what} {reached[what]:.1f} % (floor {FLOORS[what]:.0f} %)" for what in FLOORS
    )
    print(f"Coverage: {told}")
    if all(reached[what] >= FLOORS[what] for what in FLOORS):
        return 0
    for name, file in sorted(report["files"].items()):
        if file["missing_lines"]:
            lines = ", ".join(map(str, file["missing_lines"][:20]))
            print(f"  {name}: lines {lines} were never run")
    return 1


if __name__ == "__main__":
    sys.exit(main())
