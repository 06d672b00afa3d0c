"""Which files a patch names; what it costs to find them."""

import time

from fleetd.harness.payload import patched


def test_files_are_named_once_and_absolutely() -> None:
    patch = "*** Add File: a.py  \r\n+x\n*** Update File: /srv/b.py\n*** Move to: a.py\n+*** no\n"
    assert patched(patch, "/home/user") == ("/home/user/a.py", "/srv/b.py")


def test_a_line_of_spaces_takes_no_longer_than_one_of_words() -> None:
    words, spaces = (f"*** Add File: a{char * 100_000}b\n" for char in "x ")
    begun = time.process_time()
    for _ in range(100):
        patched(words, "/home/user")
    reference = time.process_time() - begun
    begun = time.process_time()
    patched(spaces, "/home/user")
    assert time.process_time() - begun < reference + 1
