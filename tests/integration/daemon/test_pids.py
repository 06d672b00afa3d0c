"""A pid that no process can have, as a damaged row may hold it, is that of one that is gone."""

from fleetd.host.processes import ended


async def test_a_process_with_a_pid_beyond_all_pids_has_ended() -> None:
    await ended(2**40, None)
