"""Build backend: setuptools, and the compiled hook client where a C compiler is found.

Nothing fails for want of it: fleetctl then has the hook client in Python alone.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

SOURCE = Path(__file__).absolute().with_name("hook_client.c")
ROOT = SOURCE.parents[1]
PROGRAM = Path("fleetctl/_hook_client")
COMPILE_S = 120

Settings = Mapping[str, Any] | None


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, for this platform alone if it holds a compiled program."""
    settings = dict(config_settings or {})
    if compiled():
        given = settings.get("--build-option", [])
        given = shlex.split(given) if isinstance(given, str) else given
        settings["--build-option"] = ["--plat-name", sysconfig.get_platform(), *given]
    return build_meta.build_wheel(wheel_directory, settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel that leads to this directory, and the program in it."""
    compiled()
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)


def compiled() -> bool:
    """Compile the hook client into its package; return whether there is one now.

    One of an earlier build goes first: it is of other sources, or of another machine.
    """
    for earlier in (ROOT / PROGRAM, ROOT / "build" / "lib" / PROGRAM):
        earlier.unlink(missing_ok=True)
    complaint = compile_client(ROOT / PROGRAM)
    if complaint:
        print(f"fleetd: hooks use the client in Python: {complaint}", file=sys.stderr)
    return not complaint


def compile_client(program: Path, *flags: str) -> str:
    """Compile the hook client for this interpreter's platform; return what went wrong."""
    if sys.maxsize < 1 << 32:
        return "the interpreter has 32 bits, what the compiler makes may have 64"
    unfinished = program.with_name(f"{program.name}.{os.getpid()}")
    try:
        compiler, *own_flags = shlex.split(os.environ.get("CC") or "cc")
        if shutil.which(compiler) is None:
            return f"no C compiler {compiler!r} was found"
        own_flags += shlex.split(os.environ.get("CFLAGS", ""))
        ends = shlex.split(os.environ.get("LDFLAGS", ""))
        command = [compiler, "-std=c11", "-O2", *_architectures(), *own_flags, *flags]
        done = subprocess.run(
            [*command, "-o", str(unfinished), str(SOURCE), *ends],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMPILE_S,
            check=False,
        )
        if done.returncode:
            said = done.stdout.decode(errors="replace").strip().splitlines()
            return f"{compiler} failed: {said[0] if said else done.returncode}"
        unfinished.replace(program)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        unfinished.unlink(missing_ok=True)
    return ""


def _architectures() -> list[str]:
    """Return the flags with which macOS compiles for all that the wheel's tag promises."""
    system, *target = sysconfig.get_platform().split("-")
    if system != "macosx":
        return []
    version, processor = target
    processors = ["arm64", "x86_64"] if processor == "universal2" else [processor]
    return [f"-mmacosx-version-min={version}", *(w for p in processors for w in ("-arch", p))]
