"""Session keys: what names a window of a harness."""

import msgspec

from .tx import Row


class Key(msgspec.Struct, frozen=True):
    """The name of a window: its harness, the harness's own session id, the subagent in it."""

    harness: str
    session_id: str
    subagent: str = ""

    @property
    def params(self) -> Row:
        """Return the values of the primary key's columns."""
        return {
            "harness": self.harness,
            "session": self.session_id,
            "subagent": self.subagent,
        }


WHERE_KEY = "harness = :harness AND session_id = :session AND subagent = :subagent"
