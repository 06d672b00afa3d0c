"""Writes the checksums of every version of the database's schema."""

import json
from collections.abc import Mapping

from fleetd.store.sqlite.integrity_check import DIGESTS, digests


def files() -> Mapping[str, str]:
    """Return the file with which a daemon compares a database."""
    path = f"fleetd/store/migrations/sqlite/{DIGESTS}"
    return {path: json.dumps(digests(), indent=2) + "\n"}
