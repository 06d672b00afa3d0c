"""What commands use in the place of the protocol's Structs is the same in all but weight."""

import copy
import importlib
import pkgutil

import msgspec
import pytest

import fleetd.protocol
from fleetctl.client import methods, models
from fleetctl.client.models import WIRE_NAMES, PlainRecord, decode, encode
from fleetd.protocol.errors import Incompatible
from fleetd.protocol.methods import METHODS
from fleetd.protocol.records import Finding
from fleetd.protocol.request import LongMutation


def shapes() -> set[type[msgspec.Struct]]:
    """Return every Struct that may cross the socket."""
    modules = [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(fleetd.protocol.__path__, "fleetd.protocol.")
    ]
    return {
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, msgspec.Struct)
    }


def test_commands_know_which_methods_may_take_long_and_which_tell_how_far_they_are():
    may_take_long = {name for name, (_, _, long) in methods.METHODS.items() if long}
    assert {name for name, known in METHODS.items() if known.long} == may_take_long
    telling = {name for name, known in METHODS.items() if issubclass(known, LongMutation)}
    assert may_take_long - telling == {"usage.report"}
    asked = models.SystemBackup(path="/x").tracked("t")
    assert decode(asked.encoded()) == {"path": "/x", "progress_token": "t"}
    assert models.SystemHello().tracked("t").encoded() == b"{}"


@pytest.mark.parametrize("name", METHODS)
def test_a_request_goes_by_the_name_of_its_struct(name):
    asked = getattr(models, METHODS[name].__name__)

    assert (asked.method, asked.changes) == (name, METHODS[name].changes)


def test_every_member_can_be_read_as_an_attribute():
    fields = {
        pair
        for shape in shapes()
        for pair in zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True)
    }

    assert len(fields) > 200
    assert {name for name, _ in fields} & set(dir(dict)) == set()
    assert {name: told for name, told in fields if name != told} == WIRE_NAMES


def test_a_request_says_what_it_was_given_and_nothing_else():
    sent = models.MessageSend(sender="a", to=["b"], subject="Ready?")

    assert decode(sent.keyed("k").encoded()) == {
        "idempotency_key": "k",
        "from": "a",
        "to": ["b"],
        "subject": "Ready?",
    }
    assert models.MissionList(limit=2).keyed("k").encoded() == b'{"limit":2}'


def test_records_lie_within_records():
    found = decode(b'{"messages":[{"from":"a","subject":"Ready?"}]}')

    assert [(each.sender, each.subject) for each in found.messages] == [("a", "Ready?")]


def test_a_member_that_is_missing_is_not_understood():
    with pytest.raises(Incompatible, match="it has no deleted"):
        decode(b"{}").deleted  # noqa: B018
    assert not hasattr(PlainRecord(), "__json__")


def test_hasattr_and_getattr_on_a_record_ask_whether_it_has_a_member():
    found = decode(b'{"a":1}')

    assert (hasattr(found, "a"), hasattr(found, "b")) == (True, False)
    assert getattr(found, "b", None) is None
    assert copy.deepcopy(found) == found


def test_importing_a_misspelt_request_name_fails():
    for name in ("MisionList", "MissionLst", "Nothing"):
        with pytest.raises(ImportError, match=name):
            exec(f"from fleetctl.client.models import {name}")


def test_the_records_that_commands_name_are_those_of_the_wire():
    known = {each.__name__ for each in shapes()}

    assert known >= methods.RECORDS
    assert all(getattr(models, name) is PlainRecord for name in methods.RECORDS - {"Finding"})


def test_a_finding_of_a_command_looks_like_one_of_the_daemon():
    made = models.Finding(check="socket", ok=True, detail="its path fits")

    assert encode(made) == msgspec.json.encode(
        Finding(check="socket", ok=True, detail="its path fits")
    )
