"""The configuration file: nobody else may write it, nor put another in its place.

It names the store, so whoever writes it reads what the fleet says.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd.config import ConfigError, load
from fleetd.host import permissions
from tests.integration.access.conftest import STRANGER

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


@pytest.fixture
def file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a configuration file in a directory of its own."""
    path = home / "config" / "fleet" / "config.toml"
    path.parent.mkdir(mode=0o755)
    path.write_text("[limits]\nbatch = 2\n")
    path.chmod(0o600)
    monkeypatch.setenv("FLEET_CONFIG", str(path))
    assert load().config.limits.batch == 2
    return path


@pytest.fixture
def foreign_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no group be the user's own."""
    monkeypatch.setattr(permissions, "_is_private", lambda gid: False)


@pytest.mark.usefixtures("foreign_group")
@pytest.mark.parametrize("mode", [0o666, 0o606, 0o622, 0o660, 0o664, 0o620])
def test_a_config_file_that_a_foreign_group_or_others_may_write_is_refused(
    file: Path, mode: int
) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigError, match=rf"has mode {mode:04o}, so others may write to it"):
        load()


@pytest.mark.usefixtures("foreign_group")
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775, 0o770])
@pytest.mark.parametrize("above", [0, 1])
def test_a_config_file_in_a_directory_that_others_may_write_is_refused(
    file: Path, mode: int, above: int
) -> None:
    weak = file.parents[above]
    weak.chmod(mode)
    with pytest.raises(ConfigError, match=rf"reached by {weak}, which has mode {mode:04o}"):
        load()


def test_a_config_file_that_the_users_own_group_may_write_is_taken(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "_is_private", lambda gid: gid == file.stat().st_gid)
    file.chmod(0o660)
    file.parent.chmod(0o770)
    assert load().config.limits.batch == 2


def test_a_config_file_in_a_sticky_directory_is_taken(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert load().config.limits.batch == 2


def test_a_sticky_config_file_is_no_safer_for_it(file: Path) -> None:
    file.chmod(0o1666)
    with pytest.raises(ConfigError, match="has mode 1666"):
        load()


def test_a_config_file_behind_a_link_that_others_could_exchange_is_refused(
    file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = home / "project" / "mine.toml"
    link.symlink_to(file)
    monkeypatch.setenv("FLEET_CONFIG", str(link))
    assert load().config.limits.batch == 2
    link.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=f"reached by {link.parent}, which has mode 0777"):
        load()


@ROOT_ONLY
@pytest.mark.parametrize("above", [True, False])
def test_a_config_file_or_directory_of_somebody_else_is_refused(file: Path, above: bool) -> None:
    os.chown(file.parent if above else file, STRANGER, STRANGER)
    with pytest.raises(ConfigError, match=f"belongs to uid {STRANGER}"):
        load()


def test_a_config_file_that_is_not_there_needs_no_safe_directory(file: Path, home: Path) -> None:
    file.unlink()
    file.parent.chmod(0o777)
    assert load().config.limits.batch != 2


def test_a_daemon_does_not_start_with_a_config_file_in_an_open_directory(
    file: Path, refused: Callable[..., str]
) -> None:
    file.parent.chmod(0o777)
    told = refused(FLEET_CONFIG=str(file))
    assert f"{file} is reached by {file.parent}, which has mode 0777" in told
    assert f"chmod go-w {file.parent}" in told
