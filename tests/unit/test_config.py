"""Settings: where they come from, which wins, and what a wrong one says."""

import os

import pytest

from fleetd import config
from fleetd.host import paths


@pytest.fixture
def env(tmp_path, monkeypatch):
    """An environment of nothing but a home and a configuration file's place."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return {"FLEET_CONFIG": str(tmp_path / "config.toml"), "XDG_RUNTIME_DIR": "/run/user/77"}


def test_without_file_and_environment_the_defaults_hold(env, tmp_path):
    loaded = config.load(env)

    assert loaded.config.detection.threshold_ms == 300_000
    assert loaded.config.locks.lease_ms == 600_000
    assert loaded.config.retention == config.Retention(days=7, keep=3, completed_days=30)
    assert loaded.config.limits.checkpoints_per_mission == 100
    assert loaded.config.prompt.max_chars == 9_500
    assert loaded.config.database == tmp_path / ".local/share/fleet/squawk.db"
    assert str(loaded.config.checkpoints).endswith("/.flightline/checkpoints")
    assert str(loaded.config.socket) == "/run/user/77/fleet/fleetd.sock"
    assert {setting.origin for setting in loaded.settings()} == {"default"}


def test_the_environment_wins_over_the_file_and_each_value_knows_its_origin(env, tmp_path):
    (tmp_path / "config.toml").write_text(
        'log_level = "DEBUG"\n[detection]\nthreshold_ms = 1000\n[locks]\nlease_ms = 5\n'
        '[paths]\ncheckpoints = "/from/file"\n'
    )
    env |= {"FLEET_ACTIVITY_THRESHOLD_MS": "2000", "FLIGHTLINE_DIR": str(tmp_path / "fl")}

    loaded = config.load(env)
    origins = {setting.key: (setting.value, setting.origin) for setting in loaded.settings()}

    assert origins["detection.threshold_ms"] == (2000, "environment FLEET_ACTIVITY_THRESHOLD_MS")
    assert origins["locks.lease_ms"] == (5, f"file {tmp_path}/config.toml")
    assert origins["log_level"] == ("DEBUG", f"file {tmp_path}/config.toml")
    assert origins["paths.checkpoints"] == (
        str(tmp_path / "fl/checkpoints"),
        "environment FLIGHTLINE_DIR",
    )
    assert origins["retention.days"] == (7, "default")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[retention]\nkeep = 0\n", ["retention.keep", "0", "at least 1"]),
        ("[limits]\nline_bytes = 'big'\n", ["limits.line_bytes", "big", "int"]),
        ("[limits]\nsize = 3\n", ["limits", "no setting size"]),
        ("log_level = 'LOUD'\n", ["log_level", "LOUD"]),
        ("keep_prompts = 'no'\n", ["keep_prompts", "no", "true or false"]),
        ("what = [\n", ["not TOML"]),
        ("project_ignore = '~/x'\n", ["project_ignore", "'~/x'", "array"]),
        ("project_ignore = ['/a', 3]\n", ["project_ignore", "3", "str"]),
        ("project_ignore = ['/a', 'work/x']\n", ["project_ignore", "'work/x'", "absolute path"]),
        ("project_ignore = ['']\n", ["project_ignore", "''", "list of directories"]),
        ("project_ignore = ['~no-such-user/x']\n", ["project_ignore", "'~no-such-user/x'"]),
        ('project_ignore = ["/a\\u0000b"]\n', ["project_ignore", "list of directories"]),
        ("projects = ['/a']\n", ["projects", "['/a']", "[projects]"]),
        ("[projects]\na = '/a'\n", ["projects.a", "'/a'", "list of directories"]),
        ("[projects]\na = [1]\n", ["projects.a", "[1]", "list of directories"]),
        ("[projects]\na = ['src/a']\n", ["projects.a", "'src/a'", "absolute path"]),
        ("[projects]\ngit.example = ['/a']\n", ["projects.git", "Put a name with dots in quotes"]),
        ("[projects]\n'/a' = ['/a']\n", ["projects./a", "is not a valid project name"]),
        ("[projects]\n'' = ['/a']\n", ["''", "is not a valid project name"]),
        ("[projects]\na = ['/x']\nb = ['/x/']\n", ["projects.b", "'/x'", "projects.a"]),
    ],
)
def test_a_wrong_value_in_the_file_names_key_value_and_what_is_allowed(env, tmp_path, text, told):
    (tmp_path / "config.toml").write_text(text)

    with pytest.raises(config.ConfigError) as caught:
        config.load(env)

    assert all(part in str(caught.value) for part in [*told, "config.toml"])


@pytest.mark.parametrize("value", ["soon", "0", "-5", "1.5"])
def test_a_wrong_threshold_in_the_environment_is_refused_by_name(env, value):
    with pytest.raises(config.ConfigError) as caught:
        config.load(env | {"FLEET_ACTIVITY_THRESHOLD_MS": value})

    assert value in str(caught.value)
    assert "threshold_ms" in str(caught.value).lower()


def test_a_file_that_cannot_be_read_is_named(env, tmp_path):
    (tmp_path / "config.toml").mkdir()

    with pytest.raises(config.ConfigError, match=r"config\.toml cannot be read"):
        config.load(env)


def test_a_pipe_in_the_place_of_the_file_hangs_nobody(env, tmp_path):
    os.mkfifo(tmp_path / "config.toml")

    with pytest.raises(config.ConfigError, match=r"config\.toml is not a regular file"):
        config.load(env)


def test_the_socket_never_lies_where_everybody_may_write(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_294_967)

    found = paths.socket_path({})

    assert found == tmp_path / ".local/state/fleet/fleetd.sock"


def test_a_relative_runtime_directory_is_not_trusted(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 4_294_967)

    assert paths.socket_path({"XDG_RUNTIME_DIR": "run"}).is_relative_to(tmp_path)


def test_a_socket_path_that_is_too_long_is_refused_with_its_length(tmp_path):
    path = tmp_path / ("x" * 200)

    with pytest.raises(
        paths.PathRefused, match=rf"{len(str(path))} bytes long, 10[37] are allowed"
    ):
        paths.check_socket_length(path)


@pytest.mark.parametrize("name", ["FLEET_DB_PATH", "FLEET_SOCKET", "FLIGHTLINE_DIR"])
def test_a_relative_path_is_refused_because_it_would_move(env, name):
    with pytest.raises(config.ConfigError, match=r"is 'rel.*: give an absolute path"):
        config.load(env | {name: "rel"})


def test_ignored_directories_are_real_paths_and_know_their_origin(env, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "config.toml").write_text(
        f"project_ignore = ['~/link/', '/etc/../srv//x', '{tmp_path}/not/there']\n"
    )

    loaded = config.load(env)
    (shown,) = [each for each in loaded.settings() if each.key == "project_ignore"]

    assert shown.value == [str(tmp_path / "real"), "/srv/x", f"{tmp_path}/not/there"]
    assert shown.value == loaded.config.project_ignore
    assert shown.origin == f"file {tmp_path}/config.toml"


def test_the_directories_of_projects_are_real_paths_and_know_their_origin(env, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "config.toml").write_text(
        f'[projects]\nwidget = ["~/src", "{tmp_path}/link/x/"]\n"git.example/A/B" = []\n'
    )

    loaded = config.load(env)

    here = str((tmp_path / "src").resolve())
    assert loaded.config.projects == {"widget": [here, f"{here}/x"], "git.example/A/B": []}
    shown = {setting.key: (setting.value, setting.origin) for setting in loaded.settings()}
    assert shown["projects.widget"] == ([here, f"{here}/x"], f"file {tmp_path}/config.toml")


def test_without_any_project_the_setting_is_shown_all_the_same(env):
    shown = {setting.key: setting.value for setting in config.load(env).settings()}

    assert shown["projects"] == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://fleet:geheim@db.example.org/fleet",
        "postgresql://fleet:ge%40he%2Fim@db/fleet?sslmode=require",
        "postgresql://fleet:ge/geheim@db/fleet",
        "postgresql://fleet:ge@geheim@db/fleet",
        "postgresql://fleet:ge#geheim?geheim@db/fleet",
        "postgresql://fleet:ge\ngeheim@db/fleet",
        "postgresql://:geheim@/fleet?host=/run",
        "postgresql://fleet:geheim@a:5432,b:5433/fleet?target_session_attrs=any",
        "postgresql://fleet@db/fleet?password=geheim&sslmode=require",
        "postgresql://fleet@db/fleet?PassWord=geheim",
        "postgresql://fleet@db/fleet?p%61ssword=geheim",
        "postgresql://fleet@db/fleet?sslpassword=geheim",
        "postgresql://fleet@db/fleet?oauth_client_secret=geheim",
        "host=db user=fleet password=geheim",
        "host=db password = 'ge heim geheim' user=fleet",
        r"host=db password='ge\'geheim' user=fleet",
        r"host=db password=ge\ geheim user=fleet",
        "host=db password=ge&geheim user=fleet",
        "host=db password='geheim",
    ],
)
def test_no_password_is_shown_however_it_is_written(url):
    shown = config.without_password(url)
    assert "heim" not in shown
    assert "***" in shown
    assert "db" in shown or "/run" in shown or "a:5432" in shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://fleet@db.example.org:5432/fleet",
        "postgresql:///fleet?host=/run/postgresql",
        "postgresql://fleet@a:1,b:2/fleet?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://fleet@[::1]:5432/fleet",
        "service=fleet",
    ],
)
def test_a_url_without_a_password_is_shown_as_it_is(url):
    assert config.without_password(url) == url


def test_a_password_is_in_no_message_about_a_wrong_setting(env, tmp_path):
    (tmp_path / "config.toml").write_text('store = ["postgresql://fleet:geheim@db/fleet"]\n')
    with pytest.raises(config.ConfigError) as refused:
        config.load(env)
    assert "store" in str(refused.value)
    assert "geheim" not in str(refused.value)
