"""What clones of one project are called, by whatever URL each has its remote."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetd.engine.repositories import shared_name

ONE_PROJECT = [
    "git@github.com:Acme/Widget.git",
    "git@github.com:Acme/Widget",
    "git@github.com:/Acme/Widget.git",
    "alice@GitHub.com:Acme/Widget.git/",
    "github.com:Acme/Widget",
    "ssh://git@github.com:22/Acme/Widget",
    "ssh://git@ssh.github.com:443/Acme/Widget.git",
    "git+ssh://git@github.com/Acme/Widget",
    "[git@github.com:22]:Acme/Widget.git",
    "https://github.com/Acme/Widget",
    "https://user:token@github.com/Acme/Widget.git/",
    "https://user:p@ss@github.com:443/Acme/Widget.git",
    "https://github.com./Acme//Widget.git?token=abc#x",
    "HTTP://GITHUB.COM:80/Acme/./x/../Widget",
    "git://github.com:9418/Acme/Widget.git",
    " https://github.com/Acme/Widget.git ",
]


@pytest.mark.parametrize("url", ONE_PROJECT)
def test_all_urls_of_a_project_are_one_name(url: str) -> None:
    assert shared_name(url) == "github.com/Acme/Widget"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:acme/widget.git", "github.com/acme/widget"),  # case is the host's to judge
        ("ssh://git@gitlab.example:2222/a/b.git", "gitlab.example:2222/a/b"),
        ("[git@gitlab.example:2222]:a/b.git", "gitlab.example:2222/a/b"),
        ("https://gitlab.example:8443/a/b", "gitlab.example:8443/a/b"),
        ("ssh://git@[2001:db8::7]:22/a.git", "[2001:db8::7]/a"),
        ("git@[2001:db8::7]:a.git", "[2001:db8::7]/a"),
        ("host:/srv/git/x.git", "host/srv/git/x"),
        ("host:~me/x.git", "host/~me/x"),
        ("ssh://host/~me/x", "host/~me/x"),
        ("ssh://host/home/me/x/.git", "host/home/me/x"),
        ("git@bitbucket.org:a/b.git", "bitbucket.org/a/b"),
        ("ssh://git@altssh.bitbucket.org:443/a/b.git", "bitbucket.org/a/b"),
        ("s3://key:secret@bucket/x.git", "s3://bucket/x"),
    ],
)
def test_what_tells_projects_apart_stays(url: str, name: str) -> None:
    assert shared_name(url) == name


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/x.git",
        "./x.git",
        "../x:y",
        "a/b:c",
        "~/x.git",
        "file:///srv/x.git",
        "file://server/x.git",
        "ssh://localhost/srv/x.git",
        "me@localhost:x.git",
        "http://127.0.0.1:3000/a/b",
        "ssh://[::1]/a",
        "ext::sh -c 'connect %S'",
        "codecommit::eu-west-1://profile@x",
        "https://host",
        "https://host/.git",
        "https:///x",
        "git@github.com:a\nb",
    ],
)
def test_what_means_one_machine_only_has_no_shared_name(url: str) -> None:
    assert shared_name(url) is None


WORDS = st.text("abcXYZ019._-~%", min_size=1, max_size=8)
HOSTS = st.from_regex(r"\A[A-Za-z][A-Za-z0-9.-]{0,12}\Z")
PORTS = st.sampled_from(["", ":", ":22", ":80", ":443", ":9418", ":2222", ":8443"])
URLS = st.builds(
    "{}://{}{}{}/{}{}".format,
    st.sampled_from(["https", "ssh", "git", "HTTP", "git+ssh", "s3"]),
    st.sampled_from(["", "git@", "me:secret@", "a:b@c@"]),
    HOSTS,
    PORTS,
    st.lists(WORDS, max_size=4).map("/".join),
    st.sampled_from(["", "/", ".git", ".git/", "//"]),
)
SHORT = st.builds("{}{}:{}".format, st.sampled_from(["", "git@"]), HOSTS, WORDS)


@example("https://A/..git")
@given(URLS | SHORT | st.text(max_size=40))
@settings(deadline=None)
def test_a_name_is_its_own_name(url: str) -> None:
    name = shared_name(url)
    if name is not None:
        assert shared_name(name if "://" in name else f"https://{name}") == name
        assert shared_name(name if "://" in name else f"ssh://git@{name}.git") == name
        assert "secret" not in name
