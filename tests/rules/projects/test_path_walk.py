"""Paths are resolved as ``os.path.realpath`` resolves them, and it is said which part is asked."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.host.file_system import PathWalk, absolute


def real_path(file: str, base: str | None) -> str | None:
    path = absolute(file, base)
    return None if path is None else PathWalk().facts(path).real


@pytest.mark.parametrize(
    "file", ["src/a.py", "./src/../src/a.py", "src//a.py", "link/a.py", "{root}/src/a.py"]
)
def test_one_file_has_one_path_whatever_it_is_called(tmp_path: Path, file: str) -> None:
    root = tmp_path.resolve()
    (root / "src").mkdir()
    (root / "link").symlink_to("src")
    assert real_path(file.format(root=root), str(root)) == str(root / "src" / "a.py")


def test_a_file_that_is_not_there_yet_has_a_path_too(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    assert real_path("new/b.py", str(root)) == str(root / "new" / "b.py")


@pytest.mark.parametrize("base", [None, "project", ""])
def test_a_relative_path_needs_an_absolute_base(base: str | None) -> None:
    assert real_path("src/a.py", base) is None


def test_the_home_directory_may_be_written_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere/at/all")
    assert real_path("~/a.py", None) == "/nowhere/at/all/a.py"


def test_what_is_no_path_of_this_system_stays_as_it_is() -> None:
    assert PathWalk().facts("/a/./b\0c/../d").real == "/a/d"


NAMES = st.sampled_from(["a", "b", "c", "file", "missing", "..", ".", ""])
LINKS = st.lists(NAMES.filter(bool), min_size=1, max_size=4).map("/".join)
TARGETS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    links=st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.tuples(st.booleans(), LINKS), max_size=3
    ),
    paths=st.lists(st.tuples(st.booleans(), TARGETS), min_size=1, max_size=8),
)
def test_paths_are_what_the_standard_library_makes_of_them(
    tmp_path_factory: pytest.TempPathFactory,
    links: dict[str, tuple[bool, str]],
    paths: list[tuple[bool, str]],
) -> None:
    """Links to links, to themselves, in circles, over ``..``, and through what is no directory."""
    root = tmp_path_factory.mktemp("walk").resolve()
    (root / "file").write_text("")
    for name in ("a", "b", "c"):
        whole, target = links.get(name, (False, ""))
        target = f"{root}/{target}" if whole else target
        if target:
            (root / name).symlink_to(target)
        else:
            (root / name).mkdir()
    for doubled, path in paths:
        given_path = f"{root}/{'/' * doubled}{path}"
        found = PathWalk().facts(given_path)
        # Behind a circle a doubled slash leads realpath to the root of the file system.
        assert found.real == os.path.realpath(re.sub("/+", "/", given_path))
        assert found.is_directory == os.path.isdir(found.real)


def test_it_says_what_it_asks_for_and_how_far_it_has_come(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "far" / "away").mkdir(parents=True)
    (root / "link").symlink_to(root / "far")
    asked: list[str] = []
    far = []

    def touch(path: str) -> None:
        asked.append(path)
        far.append(walk.reached)
        if path.endswith("away"):
            raise TimeoutError

    walk = PathWalk(touch)
    with pytest.raises(TimeoutError):
        walk.facts(f"{root}/link/./away/../b.py")
    assert asked[-2:] == [f"{root}/far", f"{root}/far/away"]
    assert walk.at == f"{root}/far/away"
    assert walk.reached == f"{root}/far/b.py"


def test_the_root_of_a_project_is_that_of_its_repository(
    repository: Path, worktree: Path, tmp_path: Path
) -> None:
    deep = repository / "src" / "deep"
    deep.mkdir(parents=True)
    walk = PathWalk()
    assert walk.root(str(deep)) == str(repository.resolve())
    assert walk.root(str(worktree.resolve())) == str(worktree.resolve())
    bare = tmp_path / "no repository"
    assert walk.root(str(bare)) is None
    assert walk.root("/") is None
    assert walk.at is None
