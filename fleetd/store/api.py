"""Where bytes rest: the database and the checkpoint files; must not know the rules."""


class StoreRefused(Exception):
    """The store cannot be opened; the text says why and what to do."""


class StoreUnready(StoreRefused):
    """The disk refuses for now, so that starting again later may help."""


class StoreFull(StoreUnready):
    """There is no room to open the store."""


class CopyFailed(Exception):
    """A copy of the database could not be written; the text says why."""


class CopyRefused(Exception):
    """This kind of store is not copied into a file; ``hint`` says what to do instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class CopyDamaged(CopyFailed):
    """A copy failed its checks, which is to say that what it was made of is damaged."""


class StoreFailed(Exception):
    """The disk failed while the store was open; nothing further may be acknowledged."""
