"""What the daemon does before it has threads."""

import subprocess
import sys

# Threads that meet a kind of record for the first time at once; without the call in the middle
# this ends with a segmentation fault.
TOGETHER = """
import sys, threading
import msgspec
from fleetd.daemon import prepare_decoders
def kind(number):
    plain = [(f"f{each}", int | None, None) for each in range(30)]
    inner = [msgspec.defstruct(f"I{number}_{part}", plain) for part in range(8)]
    fields = [(f"a{part}", each | None, None) for part, each in enumerate(inner)]
    return msgspec.defstruct(f"S{number}", fields)
kinds = [kind(number) for number in range(60)]
prepare_decoders(msgspec.Struct)
sys.setswitchinterval(1e-6)
started = threading.Barrier(3)
def read():
    for each in kinds:
        started.wait()
        assert msgspec.convert({"a7": {"f29": 2}}, each).a7.f29 == 2
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("read")
"""


def test_threads_may_meet_a_kind_of_record_for_the_first_time_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")
