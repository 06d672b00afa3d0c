"""Daily verification of some files: bit rot is found while the other copy is still whole.

A round takes a limited number of files, those not verified for longest, and repairs what one copy
can repair. Each machine verifies the files that it keeps.
"""

import logging
import time

from ...domain.artifacts.inventory import UnverifiedFile, files_verified, unverified
from ...domain.artifacts.kinds import KINDS
from ...domain.system.daily_rounds import Round, round_done
from ...protocol.records import Finding
from ...protocol.timestamps import iso
from ...protocol.types import Noun
from ..engine import Engine
from ..files.inventory import check_latest
from ..files.repair import check

log = logging.getLogger("fleetd")
# The maximum duration of a round, in seconds of this process's CPU.
CPU_S = 3.0


class _Tally:
    """The results of a round so far, and whether it may continue."""

    def __init__(self, most_files: int) -> None:
        self.files = self.healed = self.damaged = 0
        self.most_files = most_files
        self._end_s = time.process_time() + CPU_S

    @property
    def is_spent(self) -> bool:
        return self.files >= self.most_files or time.process_time() >= self._end_s

    def note(self, finding: Finding) -> None:
        """Count a finding, and log what is wrong."""
        if finding.ok:
            return
        text = "Daily verification repaired %s: %s"
        if not finding.fixed:
            text = "Daily verification: %s: %s"
        self.healed += finding.fixed
        self.damaged += not finding.fixed
        log.warning(text, finding.subject, finding.detail)


async def verify_some(engine: Engine) -> Round:
    """Verify and repair as many files as a round may take, in turns of each noun.

    Raises FleetError when the store refuses; what was verified until then is noted.
    """
    began_ms, tally = engine.clock(), _Tally(engine.batches.verified_daily)
    nouns: list[Noun] = list(KINDS)
    while nouns and not (tally.is_spent or engine.closing):
        noun = nouns.pop(0)
        # Each note of a check rewrites a row.
        most = min(engine.batches.records, tally.most_files - tally.files)
        found = await engine.read(unverified, noun, iso(began_ms), most)
        await _verify(engine, noun, found, tally)
        if len(found) == most:
            nouns.append(noun)
    done = Round(at_ms=began_ms, files=tally.files, healed=tally.healed, damaged=tally.damaged)
    await engine.write(round_done, "verification", done)
    if done.files:
        log.info(
            "Verified %d checkpoint and snapshot files: %d restored, %d still damaged",
            *(done.files, done.healed, done.damaged),
        )
    return done


async def _verify(engine: Engine, noun: Noun, records: list[UnverifiedFile], tally: _Tally) -> None:
    """Verify the files of some records one by one, and note all of them together."""
    verified: list[UnverifiedFile] = []
    bad: set[str | None] = set()
    for each in records:
        if verified and (tally.is_spent or engine.closing):
            break
        finding = await check(engine, noun, each.id, each.owner_id, repair=True)
        tally.note(finding)
        if not (finding.ok or finding.fixed):
            bad.add(each.id)
        verified.append(each)
    if KINDS[noun].copies:  # a symlink contains nothing that could rot
        for owner_id in sorted({each.owner_id for each in verified}):
            try:
                found = await check_latest(engine, noun, owner_id, bad, repair=True)
            except OSError as error:
                log.warning("Daily verification: the %s files cannot be read: %s", noun, error)
                continue
            for finding in found:
                tally.note(finding)
    tally.files += len(verified)
    if verified:
        await engine.write(files_verified, noun, [each.id for each in verified])
