"""Settings files behind links: what a repository's link may not reach, and what is said of others.

A project is somebody else's word: its links lead nowhere out of it. What was looked at and shown is
what is written, or nothing is. Copies of what was there before lie with fleetd, in no repository.
"""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.completion import shells
from fleetctl.integrations import config_file, settings_backups
from fleetctl.integrations.registry import HARNESSES
from fleetd.protocol.errors import InvalidState
from tests.support.processes import Result

Run = Callable[..., Result]
SECRET = '{"auths": {"registry": {"auth": "c2VjcmV0"}}}\n'
SETTINGS = '{\n  "model": "mine"\n}\n'
COPIES = "state/fleet/settings-backups"


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository, the current directory, with a file of credentials beside it."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    (home / "project" / ".git").mkdir()
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(SECRET)
    return home / "project"


@pytest.fixture
def settings(project: Path, home: Path) -> Path:
    """Return the user's settings of Claude Code, a link to a directory of dotfiles."""
    file = home / "home" / ".claude" / "settings.json"
    file.parent.mkdir()
    target = home / "home" / "dotfiles" / "claude.json"
    target.parent.mkdir()
    target.write_text(SETTINGS)
    file.symlink_to("../dotfiles/claude.json")
    return file


def everything(directory: Path) -> dict[str, str]:
    """Return every file below a directory, with its text."""
    found = (each for each in directory.rglob("*") if each.is_file() and not each.is_symlink())
    return {str(each.relative_to(directory)): each.read_text() for each in found}


def link_out(project: Path, file: str, *, above: bool) -> Path:
    """Make a link in the project that leads to the credentials, or into their directory."""
    place = project / file
    if above and place.parent != project:
        place.parent.parent.mkdir(parents=True, exist_ok=True)
        place.parent.symlink_to(project.parent / ".docker")
        (project.parent / ".docker" / place.name).write_text(SECRET)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(project.parent / ".docker/config.json", place.parent))
    return place


FILES = [
    *(("hooks", name, each.project_file) for name, each in HARNESSES.items()),
    *(("mcp", name, each.mcp.project_file) for name, each in HARNESSES.items()),
]


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(("what", "harness", "file"), FILES)
def test_install_follows_no_link_of_a_repository_out_of_the_project(
    project: Path, run: Run, what: str, harness: str, file: str, above: bool
) -> None:
    link_out(project, file, above=above)
    before = everything(project.parent)
    for verb in ("install", "uninstall"):
        refused = run(what, verb, harness, "--project", "--yes")
        assert refused.status == 1, refused.out
        assert f"out of the project {project}" in refused.err
        assert "Hint:" in refused.err
        assert "c2VjcmV0" not in refused.out + refused.err
        assert everything(project.parent) == before
    # Nor does looking read it.
    seen = run(what, "status", harness, "--project", "--json").json["harnesses"][0]
    seen = seen.get("hooks", seen)
    assert (seen["installed"], "out of the project" in seen["problem"]) == ("unknown", True)


def test_a_dangling_link_of_a_repository_makes_no_file_outside_the_project(
    project: Path, run: Run
) -> None:
    place = project / ".claude" / "settings.local.json"
    place.parent.mkdir()
    place.symlink_to("../../made.json")
    assert run("hooks", "install", "claude", "--project", "--yes").status == 1
    assert not (project.parent / "made.json").exists()


def test_a_link_inside_the_project_is_followed_and_named(
    project: Path, run: Run, done: Run, answer: Callable[[str], None]
) -> None:
    place = project / ".claude" / "settings.local.json"
    place.parent.mkdir()
    place.symlink_to("../shared.json")
    (project / "shared.json").write_text(SETTINGS)
    answer("n")
    asked = run("hooks", "install", "claude", "--project")
    assert f"{place} leads to {project}/shared.json. Write this? [y/N]" in asked.err
    done("hooks", "install", "claude", "--project", "--yes")
    assert "/fleet-hook' claude" in (project / "shared.json").read_text()
    done("hooks", "uninstall", "claude", "--project", "--yes")
    assert everything(project) == {"shared.json": SETTINGS}


def test_elsewhere_the_question_names_the_target_of_a_link(
    settings: Path, run: Run, answer: Callable[[str], None]
) -> None:
    target = settings.resolve()
    told = f"{settings} leads to {target}."
    answer("n")
    assert f"{told} Write this? [y/N]" in run("hooks", "install", "claude").err
    assert told in run("hooks", "install", "claude", "--dry-run").out
    answered = run("hooks", "install", "claude", "--yes", "--json").json[0]
    assert (answered["target"], told in answered["notes"]) == (str(target), True)
    answer("n")
    assert told in run("hooks", "uninstall", "claude").err
    assert f"{settings} -> {target}" in run("uninstall", "--dry-run").out


def test_elsewhere_the_question_of_mcp_install_and_completions_names_the_target(
    project: Path, home: Path, run: Run, answer: Callable[[str], None]
) -> None:
    user, stow = home / "home", home / "stow"
    stow.mkdir()
    (user / ".claude.json").symlink_to(stow / "claude.json")
    answer("n")
    asked = run("mcp", "install", "claude").err
    assert f"{user}/.claude.json leads to {stow}/claude.json. Write this? [y/N]" in asked
    directory = shells.directory("bash")
    directory.parent.mkdir(parents=True)
    directory.symlink_to(stow)
    answer("n")
    asked = run("completions", "bash", "--install").err
    assert f"{directory}/fleetctl leads to {stow}/fleetctl." in asked
    assert "Write these files? [y/N]" in asked
    shown = run("completions", "bash", "--install", "--dry-run").out
    assert f"{directory}/fleetctl leads to {stow}/fleetctl." in shown


def test_a_home_that_is_a_link_itself_is_not_named_each_time(
    project: Path, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[str], None],
) -> None:  # fmt: skip
    (home / "me").symlink_to(home / "home")
    monkeypatch.setenv("HOME", str(home / "me"))
    answer("n")
    assert "leads to" not in run("hooks", "install", "claude").err


@pytest.mark.parametrize("what", ["hooks", "mcp"])
def test_backups_lie_in_no_repository_and_nobody_else_may_read_them(
    project: Path, home: Path, done: Run, what: str
) -> None:
    file = project / {"hooks": ".gemini/settings.json", "mcp": ".mcp.json"}[what]
    harness = {"hooks": "gemini", "mcp": "claude"}[what]
    file.parent.mkdir(exist_ok=True)
    file.write_text(SETTINGS)
    file.chmod(0o644)
    done(what, "install", harness, "--project", "--yes")
    assert list(everything(project)) == [str(file.relative_to(project))]
    [(name, text)] = everything(home / COPIES).items()
    mark = ".before-fleet" + ("-mcp" if what == "mcp" else "")
    assert (f"/{name}", text) == (f"{file}{mark}", SETTINGS)
    copy = home / COPIES / name
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    for above in copy.parents[: len(Path(name).parts)]:
        assert stat.S_IMODE(above.stat().st_mode) == 0o700
    done(what, "uninstall", harness, "--project", "--yes")
    assert everything(project) == {str(file.relative_to(project)): SETTINGS}
    assert not (home / COPIES).exists()


def test_what_somebody_had_in_the_place_of_completions_is_kept_with_fleetd(
    project: Path, home: Path, done: Run
) -> None:
    theirs = shells.directory("bash") / "fleetd"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("complete -W start fleetd\n")
    done("completions", "bash", "--install", "--yes")
    assert sorted(os.listdir(theirs.parent)) == ["fleet", "fleetctl", "fleetd"]
    assert list(everything(home / COPIES).values()) == ["complete -W start fleetd\n"]
    done("uninstall", "--yes")
    assert theirs.read_text() == "complete -W start fleetd\n"
    assert not (home / COPIES).exists()


def of_before(home: Path, file: Path, mark: str = ".before-fleet") -> Path:
    """Put the copy of a file beside it, where earlier versions had it."""
    [name] = everything(home / COPIES)
    beside = file.with_name(file.name + mark)
    (home / COPIES / name).rename(beside)
    return beside


@pytest.mark.parametrize("whole", [False, True])
def test_a_backup_of_an_earlier_version_beside_its_settings_is_found_and_removed(
    project: Path, home: Path, done: Run, whole: bool
) -> None:
    text = '{\n  "hooks": {\n    "Stop": [ ]\n  }\n}\n'
    user = home / "home"
    file = user / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(text)
    done("hooks", "install", "claude", "--yes")
    of_before(home, file)
    # The list that was empty is told from the text of before.
    file.write_text(file.read_text().replace("}\n", "}\n\n"))
    done(*(("uninstall", "--yes") if whole else ("hooks", "uninstall", "claude", "--yes")))
    assert everything(user) == {".claude/settings.json": text.replace("}\n", "}\n\n")}


def test_an_earlier_backup_makes_way_for_that_of_a_new_installation(
    project: Path, home: Path, done: Run
) -> None:
    """Also the one that lies beside it in the repository, and that of a file that is gone."""
    file = project / ".claude" / "settings.local.json"
    file.parent.mkdir()
    file.write_text("{}")
    done("hooks", "install", "claude", "--project", "--yes")
    beside = of_before(home, file)
    file.write_text(SETTINGS)
    done("hooks", "install", "claude", "--project", "--yes")
    assert not beside.exists()
    assert list(everything(home / COPIES).values()) == [SETTINGS]
    file.unlink()
    done("hooks", "install", "claude", "--project", "--yes")
    assert everything(home / COPIES) == {}


def test_a_link_in_the_place_of_a_backup_of_an_earlier_version_is_not_followed(
    project: Path, home: Path, done: Run
) -> None:
    file = project / ".claude" / "settings.local.json"
    done("hooks", "install", "claude", "--project", "--yes")
    link = file.with_name(file.name + ".before-fleet")
    link.symlink_to(home / ".docker" / "config.json")
    found = config_file.read(file, project=project)
    assert settings_backups.text(found) is None
    done("hooks", "uninstall", "claude", "--project", "--yes")
    assert not file.exists()
    assert (home / ".docker" / "config.json").read_text() == SECRET


def relinked(settings: Path) -> None:
    other = settings.resolve().with_name("other.json")
    other.write_text(settings.read_text())
    settings.unlink()
    settings.symlink_to(other)


def exchanged(settings: Path) -> None:
    target = settings.resolve()
    other = target.with_name("new.json")
    other.write_text(target.read_text())
    other.chmod(stat.S_IMODE(target.stat().st_mode))
    other.replace(target)


def opened_up(settings: Path) -> None:
    settings.resolve().chmod(0o600)


def written(settings: Path) -> None:
    settings.write_text(settings.read_text() + "\n")


def removed(settings: Path) -> None:
    settings.resolve().unlink()


def made_a_file(settings: Path) -> None:
    text = settings.read_text()
    settings.unlink()
    settings.write_text(text)


def moved_above(settings: Path) -> None:
    """Put a link in the place of the directory, to another one with the same link in it."""
    settings.parent.rename(settings.parent.with_name("elsewhere"))
    twin = settings.parent.with_name("twin")
    (twin / "dotfiles").mkdir(parents=True)
    (twin / "dotfiles" / "claude.json").write_text(SETTINGS)
    (twin / "x").mkdir()
    (twin / "x" / "settings.json").symlink_to("../dotfiles/claude.json")
    settings.parent.symlink_to(twin / "x")


CHANGES = [relinked, exchanged, opened_up, written, removed, made_a_file, moved_above]


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_between_the_look_and_the_write_goes_unnoticed(
    settings: Path, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
) -> None:  # fmt: skip
    after: list[dict[str, str]] = []

    def slow_answer(_question: str) -> bool:
        change(settings)
        after.append(everything(home / "home"))
        return True

    monkeypatch.setattr("fleetctl.integrations.apply.confirm", slow_answer)
    refused = run("hooks", "install", "claude")
    assert refused.status == 1
    assert "was changed by somebody else just now; nothing was written" in refused.err
    assert everything(home / "home") == after[0]
    assert not (home / COPIES).exists()


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_while_the_new_file_is_written_goes_unnoticed(
    settings: Path, home: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    """Right before it takes the old one's place, not only before it is written."""
    file = config_file.read(settings)
    after: list[dict[str, str]] = []

    def slow_disk(descriptor: int) -> None:
        if not after:
            change(settings)
            after.append(everything(home / "home"))

    monkeypatch.setattr(config_file.os, "fsync", slow_disk)
    with pytest.raises(InvalidState, match="was changed by somebody else just now"):
        config_file.write(file, b"{}")
    left = everything(home / "home")
    assert {name: left[name] for name in left if not name.endswith(".new")} == {
        name: text for name, text in after[0].items() if not name.endswith(".new")
    }
    assert not [name for name in left if name.endswith(".new")]


def test_a_file_that_somebody_makes_meanwhile_is_not_overwritten(
    project: Path, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = home / "home" / ".claude" / "settings.json"

    def slow_answer(_question: str) -> bool:
        place.parent.mkdir()
        place.write_text("{}")
        return True

    monkeypatch.setattr("fleetctl.integrations.apply.confirm", slow_answer)
    assert "just now; nothing was written" in run("hooks", "install", "claude").err
    assert place.read_text() == "{}"


def test_a_directory_of_the_project_that_becomes_a_link_meanwhile_is_not_followed(
    project: Path, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no file yet whose identity could tell."""
    (project / ".claude").mkdir()

    def slow_answer(_question: str) -> bool:
        (project / ".claude").rmdir()
        (project / ".claude").symlink_to(home / ".docker")
        return True

    monkeypatch.setattr("fleetctl.integrations.apply.confirm", slow_answer)
    refused = run("hooks", "install", "claude", "--project")
    assert (refused.status, "out of the project" in refused.err) == (1, True)
    assert os.listdir(home / ".docker") == ["config.json"]


def test_a_change_before_completions_are_written_is_noticed(
    project: Path, home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shells.directory("zsh")

    def slow_answer(_question: str) -> bool:
        directory.parent.mkdir(parents=True)
        directory.symlink_to(home / ".docker")
        return True

    monkeypatch.setattr("fleetctl.completion.shells.confirm", slow_answer)
    refused = run("completions", "zsh", "--install")
    assert (refused.status, "just now; nothing was written" in refused.err) == (1, True)
    assert os.listdir(home / ".docker") == ["config.json"]


def test_a_link_that_leads_elsewhere_after_the_question_of_uninstall_is_noticed(
    settings: Path, home: Path, run: Run, done: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("hooks", "install", "claude", "--yes")
    before = settings.read_text()

    def slow_answer(question: str) -> bool:
        relinked(settings)
        return "Take all" in question

    monkeypatch.setattr("fleetctl.commands.uninstall.confirm", slow_answer)
    monkeypatch.setattr("fleetctl.commands.uninstall.interactive", lambda: False)
    refused = run("uninstall")
    assert (refused.status, "was changed by somebody else just now" in refused.err) == (1, True)
    assert settings.read_text() == before


def test_what_is_left_of_copies_is_named_and_goes_with_the_data(
    project: Path, home: Path, done: Run
) -> None:
    """Copies of a project's settings are of use as long as something of fleetd's is in them."""
    (project / ".mcp.json").write_text("{}")
    done("mcp", "install", "claude", "--project", "--yes")
    left = {each["what"]: each for each in done("uninstall", "--yes", "--json").json["left"]}
    assert left["copies of settings"]["where"] == str(home / COPIES)
    done("uninstall", "--yes", "--delete-data")
    assert not (home / COPIES).exists()
    assert "fleet" in json.loads((project / ".mcp.json").read_text())["mcpServers"]


def test_new_settings_are_for_nobody_else_to_write_whatever_the_umask(
    project: Path, home: Path, done: Run
) -> None:
    umask = os.umask(0)
    try:
        done("hooks", "install", "claude", "--yes")
    finally:
        os.umask(umask)
    file = home / "home" / ".claude" / "settings.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o755
