"""The real agent CLIs, in the versions this was tested with; must not run an agent."""

import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

INSTALL_S = 300
CHECKOUT = Path(__file__).resolve().parents[2]
# Kept between runs: to install all takes 30 s and 1.2 GB, to look at them nothing.
CACHE = CHECKOUT / ".agents"
# How npm says that it cannot get through; what is wrong with a package is a failure.
_NO_WAY = (
    *("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH"),
    *("SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"),
)
_OUT_OF_REACH: list[str] = []
_BUILT_FOR = ("Linux", "x86_64", "glibc")


class NotHere(Exception):
    """A package cannot be had here; the text says why."""


@dataclass(frozen=True)
class Package:
    """One agent CLI: what npm calls it, and the command in it."""

    name: str
    spec: str
    version: str
    command: tuple[str, ...]
    needs_node: bool = False

    @property
    def root(self) -> Path:
        return CACHE / f"{self.name}-{self.version}"

    @property
    def program(self) -> Path:
        return self.root / "node_modules" / Path(*self.command)

    @property
    def argv(self) -> list[str]:
        return ["node", str(self.program)] if self.needs_node else [str(self.program)]

    def link(self, directory: Path) -> None:
        """Put the command where a shell would find it, as fleetd does to learn its version."""
        command = directory / self.name
        command.write_text(f'#!/bin/sh\nexec {shlex.join(self.argv)} "$@"\n')
        command.chmod(0o700)


_CLAUDE = "@anthropic-ai/claude-code-linux-x64"
CLAUDE = Package("claude", f"{_CLAUDE}@2.1.330", "2.1.330", (_CLAUDE, "claude"))
CODEX = Package(
    "codex",
    "@openai/codex@0.169.0-linux-x64",
    "0.169.0",
    ("@openai/codex", "vendor", "x86_64-unknown-linux-musl", "bin", "codex"),
)
GEMINI = Package(
    "gemini",
    "@google/gemini-cli@0.61.0",
    "0.61.0",
    ("@google/gemini-cli", "bundle", "gemini.js"),
    needs_node=True,
)

COPILOT = Package(
    "copilot",
    "@github/copilot@1.0.102",
    "1.0.102",
    ("@github/copilot", "npm-loader.js"),
    needs_node=True,
)

OPENCODE = Package(
    "opencode",
    "opencode-linux-x64@1.18.33",
    "1.18.33",
    ("opencode-linux-x64", "bin", "opencode"),
)

# They count tokens in the files of agent CLIs; later versions need another Node or a program that
# npm does not have for every platform.
CCUSAGE = Package(
    "ccusage",
    "ccusage@18.0.11",
    "18.0.11",
    ("ccusage", "dist", "index.js"),
    needs_node=True,
)
CCUSAGE_CODEX = Package(
    "ccusage-codex",
    "@ccusage/codex@18.0.11",
    "18.0.11",
    ("@ccusage/codex", "dist", "index.js"),
    needs_node=True,
)


def fetched(package: Package) -> Package:
    """Return a package of plain JavaScript that is there; raises NotHere where it cannot be."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NotHere("npm and node are needed to install agent CLIs")
    if not package.root.exists():
        _install(package)
    return package


def installed(package: Package) -> Package:
    """Return a package that is there, in its pinned version; raises NotHere where it cannot be."""
    if (platform.system(), platform.machine(), platform.libc_ver()[0]) != _BUILT_FOR:
        raise NotHere("agent CLIs are tested on Linux x86_64 with glibc only")
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NotHere("npm and node are needed to install agent CLIs")
    if not package.root.exists():
        _install(package)
    # Even to say its version Gemini CLI makes itself a directory at home.
    with tempfile.TemporaryDirectory() as home:
        said = subprocess.run(
            [*package.argv, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "HOME": home},
        )
    assert package.version in [word.rstrip(".") for word in said.stdout.split()], said.stdout
    return package


def _install(package: Package) -> None:
    """Install beside the place and rename, so that an interrupted run leaves no half of it."""
    if _OUT_OF_REACH:
        raise NotHere(f"npm reached no registry for {_OUT_OF_REACH[0]}")
    beside = package.root.with_name(f"{package.root.name}.{os.getpid()}")
    beside.mkdir(parents=True)
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    try:
        npm = ["npm", "install", "--prefix", str(beside), package.spec, "--save-exact", *quiet]
        done = subprocess.run(npm, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode and any(f"code {code}" in done.stderr for code in _NO_WAY):
            _OUT_OF_REACH.append(package.spec)
            raise NotHere(f"npm reaches no registry: {done.stderr.splitlines()[0]}")
        assert done.returncode == 0, f"npm could not install {package.spec}: {done.stderr}"
        beside.rename(package.root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
