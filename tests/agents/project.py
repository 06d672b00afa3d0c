"""What the agents are asked to work on; must not know any agent."""

import shutil
import subprocess
from pathlib import Path

PROMPT = "Make hello.py greet the whole world"
GREETING = "print('hello')\n"
PATCH = """*** Begin Patch
*** Update File: hello.py
@@
-print('hello')
+print('hello, world')
*** End Patch"""
# What a command prints is gone with the old window; of a file that was read CLIs read more.
SHOUT = "tr a-z A-Z < notes.txt"
SHOUTED = "ONLY THE OLD WINDOW KNOWS"


def repository(project: Path) -> None:
    """Make a git repository of one commit on the branch main, and a file that is not in it.

    Several agents may work in one: it is made once.
    """
    if (project / ".git").exists():
        return
    git = shutil.which("git")
    assert git, "these tests need git"
    (project / "hello.py").write_text(GREETING)
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "Begin"]):
        subprocess.run([git, *words], cwd=project, check=True, timeout=60)
    (project / "notes.txt").write_text(SHOUTED.lower())
