"""What stands for an agent CLI: it runs the server of tools below itself, and hooks when told to.

Its arguments are a directory and the server's command. What is written to ``<directory>/hook`` as
one line is given to the hook client; ``<directory>/done`` has what that printed.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path

HOOK = Path(__file__).resolve().parents[2] / "fleetctl" / "hook.py"


def run_hooks(directory: Path) -> None:
    while True:
        with open(directory / "hook") as told:
            payloads = told.read().splitlines()
        for payload in payloads:
            done = subprocess.run(
                [sys.executable, "-I", "-S", str(HOOK), "claude"],
                input=payload,
                capture_output=True,
                text=True,
                check=False,
            )
            with open(directory / "done", "w") as answer:
                answer.write(done.stdout + "\n")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    for name in ("hook", "done"):
        os.mkfifo(place / name)
    threading.Thread(target=run_hooks, args=(place,), daemon=True).start()
    sys.exit(subprocess.call(sys.argv[2:]))
