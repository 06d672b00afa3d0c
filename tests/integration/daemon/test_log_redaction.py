"""The log holds no secret, not even one that stands in a path or an id, which are stored whole."""

import io
import logging

import pytest

from fleetd.domain.redaction.redact import redact
from fleetd.host import trace
from tests.unit.secret_samples import HUNTER, TOKENS


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_no_field_that_is_stored_whole_brings_a_secret_to_the_log(stream: io.StringIO) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(trace.LineFormatter(redact))
    log = logging.Logger("test")
    log.addHandler(handler)
    token = dict(TOKENS)["github"]
    log.warning("%s waits for %s", "claude-1", f"/home/me/{token}/notes.txt")
    log.warning("cwd is /srv/password=%s", HUNTER)
    told = stream.getvalue()
    assert token not in told
    assert HUNTER not in told
    assert "claude-1 waits for /home/me/[redacted:github]/notes.txt" in told
