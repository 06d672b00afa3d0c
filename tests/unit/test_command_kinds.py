"""Kinds of commands: which run tests, and which commit."""

import pytest

from fleetd.domain.report.command_kinds import commits, runs_tests


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "python -m pytest -q tests",
        ".venv/bin/python -m pytest tests/a.py::test_b",
        "cd web && npm test",
        "npm run test:unit -- --watch=false",
        "FOO=1 nice -n 19 uv run pytest",
        "cargo test --all",
        "go test ./...",
        "make -j2 test-all",
        "bash -lc true; ./gradlew test",
        "(cd sub; tox -e py312)",
        "npx vitest run",
        "timeout 60 python3.12 -m unittest",
        "git add .\nmake test",
        "python manage.py test shop",
    ],
)
def test_these_run_tests(command: str) -> None:
    assert runs_tests(command)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "ls tests",
        "cat tests/test_a.py",
        'git commit -m "run pytest; make test"',
        "echo pytest",
        "pip install pytest",
        "vim test.py",
        "grep -rn 'make test' .",
        "'make test",
        "make all # test",
    ],
)
def test_these_do_not(command: str) -> None:
    assert not runs_tests(command)


@pytest.mark.parametrize(
    ("command", "is_commit"),
    [
        ("git commit -m x", True),
        ("git add . && git -C /p -c user.name=x commit -a", True),
        ("git commit --amend", True),
        ("git log --grep commit", False),
        ("git revert HEAD && echo commit", False),
        ("git commit-tree x", False),
        ("echo git commit", False),
        ("git -C commit status", False),
    ],
)
def test_commits(command: str, is_commit: bool) -> None:
    assert commits(command) is is_commit
