"""The files of what is forgotten: directories of missions and runs, single files of other runs."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from ...domain.artifacts.outbox import Latest, Removal
from ...domain.erasure import steps
from ...domain.erasure.scope import Scope
from ...host import progress
from ...protocol.errors import Storage
from ...protocol.requests.system import Forgotten
from ...protocol.types import Noun
from ...store.files.owner_dir import Cleared
from ...store.files.record_files import RecordFiles
from ..engine import Engine

T = TypeVar("T")
# What lies, or lay, in the directory of a mission or a run.
Lying = Mapping[tuple[Noun, str], Cleared]


async def weigh(engine: Engine, scope: Scope, missions: Iterable[str]) -> Lying:
    """Say what ``clear`` would remove; raises Storage for a directory that cannot be read."""
    found = await _each(
        engine, _whole(missions, scope.runs), lambda backups, owner_id: backups.weigh(owner_id)
    )
    for part in await engine.read(steps.parts, scope):
        found["snapshot", part.owner_id] = await _weigh_part(engine, part)
    return found


async def clear(
    engine: Engine, scope: Scope, missions: Iterable[str], runs: Iterable[str]
) -> Lying:
    """Remove every file of missions and runs, and of runs that stay those that go.

    Raises Storage that names the one which stays, and why.
    """
    going = _whole(missions, set(runs) & set(scope.runs))
    found = await _each(engine, going, lambda backups, owner_id: backups.clear(owner_id))
    for part in await engine.read(steps.parts, scope):
        found["snapshot", part.owner_id] = await _weigh_part(engine, part)
        await _clear_part(engine, part)
    return found


async def elsewhere(engine: Engine, scope: Scope) -> list[str]:
    """Return warnings about what is on other machines: it goes there, and not at once."""
    if not engine.machine:  # it has the store to itself
        return []
    found = await engine.read(steps.other_machines, scope)
    told = []
    if found.keeping:
        when = "within a minute where one runs, else when it is started"
        told.append(
            f"Files on other machines go when their daemons hear of it, {when}:"
            f" {', '.join(found.keeping)}."
        )
    if found.silent:
        told.append(
            "What hooks have left on machines that are not in touch comes in when these run again;"
            f" forget it once more then: {', '.join(found.silent)}."
        )
    return told


def with_files(forgotten: Forgotten, lying: Iterable[Lying]) -> Forgotten:
    """Return the answer with the files that went, or would, and warnings about those that stay."""
    every = [each for found in lying for each in found.values()]
    left = dict.fromkeys(path for each in every for path in each.left)
    return msgspec.structs.replace(
        forgotten,
        files=sum(len(each.names) for each in every),
        bytes=sum(each.bytes for each in every),
        warnings=[f"{path} is not fleetd's and stays; remove it yourself." for path in left],
    )


def size_of(lying: Lying, noun: Noun, owner_id: str) -> int:
    """Return the bytes of one owner's files."""
    found = lying.get((noun, owner_id))
    return found.bytes if found else 0


def _whole(missions: Iterable[str], runs: Iterable[str]) -> list[tuple[Noun, str]]:
    return [
        *(("checkpoint", each) for each in missions),
        *(("snapshot", each) for each in sorted(runs)),
    ]


async def _each(
    engine: Engine,
    owners: Iterable[tuple[Noun, str]],
    work: Callable[[RecordFiles, str], Cleared],
) -> dict[tuple[Noun, str], Cleared]:
    """Do file work for whole owners, one after the other, and on what was pulled of them."""
    found: dict[tuple[Noun, str], Cleared] = {}
    for noun, owner_id in owners:
        trees = [engine.backups[noun], *([engine.pulled] if noun == "checkpoint" else [])]
        each = [
            await _or_named(engine, tree.root / owner_id, partial(work, tree, owner_id))
            for tree in trees
        ]
        found[noun, owner_id] = Cleared(
            names=[name for one in each for name in one.names],
            bytes=sum(one.bytes for one in each),
            left=[path for one in each for path in one.left],
        )
        progress.at("files", sum(len(each.names) for each in found.values()))
    return found


async def _weigh_part(engine: Engine, part: Removal) -> Cleared:
    backups = engine.backups["snapshot"]

    def look() -> Cleared:
        names, size = [], 0
        for record_id in part.record_ids:
            for form in backups.forms(part.owner_id, record_id):
                if not form.no_file:  # that is moved aside when its place is freed
                    names.append(form.path.name)
                    size += len(form.raw)
        return Cleared(names=names, bytes=size)

    return await _or_named(engine, backups.root / part.owner_id, look)


async def _clear_part(engine: Engine, part: Removal) -> None:
    """Remove single files of a run; its latest.json must not go on holding one of them."""
    backups = engine.backups["snapshot"]
    run_id, place = part.owner_id, backups.root / part.owner_id
    # A copy that cannot be made now would stay the old one.
    latest = part.latest if part.latest.data else Latest()
    remove = partial(backups.remove, run_id, part.record_ids, latest.id, latest.data)
    for record_id, error in (await _or_named(engine, place, remove)).items():
        raise _not_removed(error, backups.path_of(run_id, record_id))


async def _or_named(engine: Engine, place: Path, work: Callable[[], T]) -> T:
    """Do file work; raises Storage that names the file, or the directory, that refuses."""
    try:
        return await engine.outbox.in_thread(work)
    except OSError as error:
        raise _not_removed(error, place) from error


def _not_removed(error: OSError, place: Path) -> Storage:
    path = str(error.filename) if str(error.filename).startswith("/") else str(place)
    return Storage(
        f"{path} could not be removed ({error.strerror}); what it belongs to stays.",
        hint="Remove the cause, then try again: it goes on where it stopped.",
        path=path,
    )
