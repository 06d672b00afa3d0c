"""Opening of the store that the settings name."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..config import Loaded
from ..domain.core.tx import Effect
from .api import Followers, StoreRefused
from .sqlite.store import SqliteStore

if TYPE_CHECKING:
    from .postgres.store import PostgresStore


def open_store(
    loaded: Loaded,
    on_commit: Callable[[list[Effect]], None],
    on_news: Callable[[], None],
    followers: Followers,
    *,
    inline: bool = False,
    vfs: str | None = None,
) -> "SqliteStore | PostgresStore":
    """Open the store: the database file of this machine, or the server that several share.

    ``on_news`` is called when another machine has committed something, while ``followers`` wait for
    it. Raises StoreRefused, which names the origin of an invalid URL.
    """
    config = loaded.config
    if not config.store:
        return SqliteStore(config.database, on_commit, inline=inline, vfs=vfs)
    check_library()
    # Imported here: a daemon with a store of its own does not need this library.
    from .postgres.store import PostgresStore

    check_url(loaded)
    directory = config.database.parent
    return PostgresStore(config.store, directory, on_commit, on_news, followers, inline=inline)


def check_url(loaded: Loaded) -> None:
    """Raise StoreRefused for an invalid URL, with where it was set."""
    from .postgres.url import display_name

    try:
        display_name(loaded.config.store)
    except StoreRefused as error:
        origin = loaded.origins.get("store")
        raise StoreRefused(f"{error} It comes from the {origin}." if origin else error) from None


def check_library() -> None:
    """Raise StoreRefused where the library for PostgreSQL is not installed."""
    try:
        from .postgres import store  # noqa: F401
    except ImportError as error:
        raise StoreRefused(
            f"The store is set to a server, which needs a library that is not installed ({error})."
            " Install it as fleetd was, in its clone: pip install '.[postgres]'."
        ) from error
