"""Every event in every shape it has had stays readable, byte for byte in meaning."""

import inspect
from pathlib import Path

import orjson
import pytest
from attrs import fields

from postledger.events import campaign, contact, delivery, system
from postledger.events.codec import decode, encode
from postledger.events.types import EVENTS, Event

GOLDEN = Path(__file__).parent / "golden"


def golden(cls: type[Event], shape: int) -> Path:
    return GOLDEN / f"{cls.stream}.{cls.type}.v{shape}.json"


SHAPES = [(cls, shape) for cls in EVENTS for shape in range(1, cls.shape + 1)]


@pytest.mark.parametrize(("cls", "shape"), SHAPES, ids=[golden(*each).stem for each in SHAPES])
def test_every_shape_is_read(cls: type[Event], shape: int):
    path = golden(cls, shape)
    assert path.exists(), f"{cls.__name__} has no golden file: write {path.name}"
    assert type(decode(cls.stream, cls.type, path.read_bytes())) is cls


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: f"{cls.stream}.{cls.type}")
def test_the_present_shape_is_written_as_it_was_read(cls: type[Event]):
    stored = golden(cls, cls.shape).read_bytes()
    assert orjson.loads(encode(decode(cls.stream, cls.type, stored))) == orjson.loads(stored)


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: f"{cls.stream}.{cls.type}")
def test_a_golden_file_has_every_field(cls: type[Event]):
    keys = orjson.loads(golden(cls, cls.shape).read_bytes()).keys() - {"v"}
    assert keys == {attribute.name.removesuffix("_") for attribute in fields(cls)}


def test_no_golden_file_is_without_its_event():
    assert {path.name for path in GOLDEN.iterdir()} == {golden(*each).name for each in SHAPES}


def test_the_union_has_every_event_class():
    written = {
        cls
        for module in (delivery, campaign, contact, system)
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Event) and "type" in vars(cls)
    }
    assert written == set(EVENTS)


def test_type_names_are_unique_in_their_stream():
    assert len({(cls.stream, cls.type) for cls in EVENTS}) == len(EVENTS)
