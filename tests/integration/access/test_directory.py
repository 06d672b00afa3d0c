"""The directory of the socket: nobody else can act in it, nor exchange it for another."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetd.host import instance_lock, permissions
from fleetd.host.paths import PathRefused
from tests.integration.access.conftest import STRANGER

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")


@pytest.fixture
def own(home: Path) -> Path:
    """Return the place of fleetd's own directory, which is not there yet."""
    return home / "run" / "fleet"


def test_a_directory_that_is_missing_is_made_for_us_alone(own: Path) -> None:
    umask = os.umask(0)
    try:
        instance_lock.claim(own)
    finally:
        os.umask(umask)
    assert own.stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o750, 0o704, 0o777, 0o770, 0o702, 0o1777])
def test_its_own_directory_is_for_nobody_else_to_look_into(own: Path, mode: int) -> None:
    own.mkdir()
    own.chmod(mode)
    with pytest.raises(PathRefused, match=rf"has mode {mode:04o}, so others.*chmod 700 {own}"):
        instance_lock.claim(own)
    assert own.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711])
def test_a_directory_that_was_chosen_may_be_looked_into(home: Path, mode: int) -> None:
    chosen = home / "home"
    chosen.chmod(mode)
    instance_lock.claim(chosen)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o720, 0o702, 0o1777])
def test_a_directory_that_was_chosen_is_not_for_others_to_write(home: Path, mode: int) -> None:
    chosen = home / "home"
    chosen.chmod(mode)
    with pytest.raises(PathRefused, match=rf"mode {mode:04o}, so others may write to it"):
        instance_lock.claim(chosen)


def test_a_symlink_is_refused_also_to_a_directory_of_ours(own: Path, home: Path) -> None:
    own.symlink_to(home / "home")
    with pytest.raises(PathRefused, match="is a symbolic link"):
        instance_lock.claim(own)


def test_something_else_in_its_place_is_refused(own: Path) -> None:
    own.write_text("mine")
    with pytest.raises(PathRefused, match=f"{own} cannot be used"):
        instance_lock.claim(own)
    assert own.read_text() == "mine"


@ROOT_ONLY
def test_a_directory_of_somebody_else_is_refused(own: Path) -> None:
    own.mkdir(mode=0o700)
    os.chown(own, STRANGER, STRANGER)
    with pytest.raises(PathRefused, match=f"belongs to uid {STRANGER}, not to uid 0"):
        instance_lock.claim(own)


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702])
def test_a_way_on_which_others_may_write_is_refused(own: Path, mode: int) -> None:
    own.parent.chmod(mode)
    with pytest.raises(PathRefused, match=rf"by {own.parent}, which has mode {mode:04o}"):
        instance_lock.claim(own)


def test_a_way_through_a_sticky_directory_is_safe(own: Path) -> None:
    own.parent.chmod(0o1777)
    instance_lock.claim(own)


@ROOT_ONLY
def test_a_way_through_a_directory_of_somebody_else_is_refused(own: Path) -> None:
    own.mkdir(mode=0o700)
    os.chown(own.parent, STRANGER, STRANGER)
    with pytest.raises(PathRefused, match=rf"by {own.parent}, which belongs to uid {STRANGER}"):
        instance_lock.claim(own)


def test_a_group_of_many_may_not_write_on_the_way(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.parent.chmod(0o770)
    monkeypatch.setattr(permissions, "_is_private", lambda gid: False)
    with pytest.raises(PathRefused, match="which has mode 0770"):
        instance_lock.claim(own)


def test_the_users_own_group_may_write_on_the_way(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.parent.chmod(0o770)
    monkeypatch.setattr(permissions, "_is_private", lambda gid: gid == own.parent.stat().st_gid)
    instance_lock.claim(own)


def test_a_link_on_the_way_is_as_good_as_where_it_leads(own: Path, home: Path) -> None:
    (home / "link").symlink_to("run/../run")
    instance_lock.claim(home / "link" / "fleet")
    own.parent.chmod(0o777)
    with pytest.raises(PathRefused, match=f"by {own.parent}, which has mode 0777"):
        instance_lock.claim(home / "link" / "fleet")


def test_a_link_that_others_could_exchange_is_refused_though_it_leads_to_a_safe_place(
    home: Path,
) -> None:
    open_to_all = home / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "hop").symlink_to(home / "run")
    (home / "link").symlink_to(open_to_all / "hop")
    with pytest.raises(PathRefused, match=f"by {open_to_all}, which has mode 0777"):
        instance_lock.claim(home / "link" / "fleet")


@ROOT_ONLY
def test_a_link_of_somebody_else_is_refused_also_in_a_sticky_directory(home: Path) -> None:
    (home / "run").chmod(0o1777)
    link = home / "run" / "link"
    link.symlink_to(home / "data")
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(PathRefused, match=f"by {link}, which belongs to uid {STRANGER}"):
        instance_lock.claim(link / "fleet")


def test_a_way_in_a_circle_is_refused(home: Path) -> None:
    (home / "one").symlink_to("two")
    (home / "two").symlink_to("one")
    with pytest.raises(PathRefused, match="cannot be used"):
        instance_lock.claim(home / "one" / "fleet")


def test_where_root_has_no_uid_its_directories_are_trusted(own: Path) -> None:
    """So it is in a user unit that is kept from the rest of the system."""
    code = f"""if True:
        import pathlib
        from fleetd.host import instance_lock
        instance_lock.claim(pathlib.Path({str(own)!r}))
    """
    command = ["unshare", "--user", "--map-user=1234", sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if "unshare" in done.stderr:
        pytest.skip(f"no user namespace can be made here: {done.stderr.strip()}")
    if "ModuleNotFoundError" in done.stderr or done.returncode == 126:
        pytest.skip("whoever has no name here cannot read the interpreter")
    assert (done.returncode, done.stderr) == (0, "")
    assert own.is_dir()


def test_a_daemon_is_refused_before_it_makes_anything(
    refused: Callable[..., str], own: Path, home: Path
) -> None:
    own.mkdir()
    own.chmod(0o755)
    log = refused(FLEET_SOCKET=str(own / "d.sock"))
    assert f"chmod 700 {own}" in log
    assert list(own.iterdir()) == []
    assert list((home / "data").iterdir()) == []


def test_a_lock_file_that_is_a_symlink_is_refused(
    refused: Callable[..., str], own: Path, home: Path
) -> None:
    own.mkdir(mode=0o700)
    (home / "precious").write_text("precious")
    (own / "fleetd.lock").symlink_to(home / "precious")
    assert f"{own / 'fleetd.lock'} cannot be opened" in refused(FLEET_SOCKET=str(own / "d.sock"))
    assert (home / "precious").read_text() == "precious"
