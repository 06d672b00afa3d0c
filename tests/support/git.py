"""Git as a test runs it: with a fixed author and without the user's settings."""

import os
import subprocess
from pathlib import Path


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    command = ["git", "-C", str(directory), *identity, *arguments]
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
