"""Reading of transcripts: portion by portion, one file after the other, beside other work."""

import contextlib
import logging
from functools import partial

import msgspec
import trio

from ...domain.usage import transcripts
from ...domain.usage.transcripts import NotedTranscript, ReadPortion, Transcript
from ...host.file_system import PathUnanswered
from ...protocol.errors import FleetError
from ...protocol.timestamps import iso
from ..engine import Engine
from .portion import read_portion, subagent_files

log = logging.getLogger("fleetd")
PORTION_S = 2.0
# How long others have the interpreter after a portion, when no request waits for it.
PAUSE_S = 0.05


async def write_noted(engine: Engine) -> None:
    """Write the noted transcripts; if the store refuses, keep them for the next time."""
    noted = engine.transcripts.take()
    if not noted:
        return
    try:
        await engine.write(transcripts.note, noted)
    except FleetError:
        engine.transcripts.put_back(noted)
        raise


async def write_noted_last(engine: Engine) -> None:
    """Write the noted transcripts at the end, when nothing more can be done about a refusal."""
    with contextlib.suppress(FleetError):
        await write_noted(engine)


async def read_transcripts(engine: Engine, *, pause_s: float = PAUSE_S) -> None:
    """Read the new parts of transcripts; raises FleetError.

    After a cancellation, the next call continues from there.
    """
    async with engine.transcripts.reading:
        await write_noted(engine)
        after = ("", "", "")
        while found := await engine.read(transcripts.pending, after):
            for each in found:
                await _read_whole(engine, each, pause_s)
                after = (each.found_at, each.path, each.session_id)


async def read_soon(engine: Engine, seconds: float) -> None:
    """Read what is outstanding for a request that waits, for ``seconds`` at most."""
    with trio.move_on_after(seconds):
        await read_transcripts(engine, pause_s=0)


async def _read_whole(engine: Engine, transcript: Transcript, pause_s: float) -> None:
    """Read a transcript up to its end."""
    await _note_subagents(engine, transcript)
    while True:
        portion = await _portion(engine, transcript)
        if not portion.is_news(transcript):
            return
        if not await engine.write(transcripts.keep, transcript, portion) or portion.whole:
            return
        transcript = msgspec.structs.replace(
            transcript,
            position=portion.position,
            head=portion.head,
            state=portion.state,
            missing=portion.missing,
            outstanding=portion.outstanding,
        )
        await trio.sleep(pause_s)


async def _portion(engine: Engine, transcript: Transcript) -> ReadPortion:
    now_ms = engine.clock()

    try:
        return await engine.files.run(
            partial(read_portion, transcript=transcript, now_ms=now_ms),
            transcript.path,
            seconds=PORTION_S,
        )
    except PathUnanswered:
        log.debug("The file system of a transcript does not answer")
    except Exception:
        # A bug with one transcript must not stop the reading of others.
        log.exception("A transcript of %s could not be read", transcript.harness)
    return ReadPortion(
        position=transcript.position, head=transcript.head, state=transcript.state, missing=True
    )


async def _note_subagents(engine: Engine, transcript: Transcript) -> None:
    """Note the transcripts of a session's subagents, which are read as the session's own."""
    known = frozenset(await engine.read(transcripts.paths_of, transcript))
    try:
        new = await engine.files.run(
            partial(subagent_files, transcript=transcript, known=known),
            transcript.path,
            seconds=PORTION_S,
        )
    except PathUnanswered:
        return
    if new:
        now = iso(engine.clock())
        noted = [
            NotedTranscript(
                harness=transcript.harness, session_id=transcript.session_id, path=path, at=now
            )
            for path in new
        ]
        await engine.write(transcripts.note, noted)
