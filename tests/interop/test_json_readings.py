"""Java's readers of JSON and ours over the same headers and bodies: the same meaning.

RocketMQ up to 5.3 reads JSON with fastjson 1.2, 5.5 with fastjson 2. What either accepts we accept,
and every value is what one of the two makes of it.
"""

import json
import math
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from bolide.protocol import fastjson, json_fields
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame, Language
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.json_samples import HEADER, ODD, Sample, samples

_PACKAGE = "org.apache.rocketmq.remoting.protocol."
_OTHER_DEFAULTS = {"opaque", "timestamp", "subVersion", "next"}
"""Members that have another value in Java if they are absent: a counter, the time, a list."""


@pytest.mark.parametrize(
    ("count", "seed"), [(3000, 8), pytest.param(100_000, None, marks=pytest.mark.long)]
)
def test_java_and_we_read_the_same(
    java_bench: Bench, tmp_path: Path, count: int, seed: int | None
) -> None:
    seed = int(os.environ.get("JSON_SEED", "0")) or seed or Random().randrange(2**32)
    asked = list(dict.fromkeys(samples(Random(seed), count)))
    java = _java(java_bench, tmp_path / "cases", asked)
    faults = [
        f"{sample.kind.java} {sample.text!r}\n  Java {readings}\n  {fault}"
        for sample, readings in zip(asked, java, strict=True)
        if (fault := _fault(sample, readings))
    ]
    accepted = [sum(reading is not None for reading in pair) for pair in java]
    print(
        f"seed {seed}: {len(asked)} texts; {accepted.count(2)} accepted by both of Java's readers,"
        f" {accepted.count(1)} by one, {accepted.count(0)} by none; {len(faults)} differ"
    )
    assert not faults, "\n".join(faults[:20])
    assert accepted.count(0) > len(ODD) / 5
    assert accepted.count(1) > len(asked) / 10
    assert accepted.count(2) > len(asked) / 5


def _java(bench: Bench, file: Path, asked: Sequence[Sample]) -> list[list[Any]]:
    """What 5.5 and what earlier releases read; None: nothing."""
    lines = [f"{_PACKAGE}{kind.java} {_base64(text)}" for kind, text, _ in asked]
    file.write_text("\n".join(lines))
    printed = bench.client(NEWEST, "JsonReadings", str(file)).wait(100)
    return [_readings(sample, line) for sample, line in zip(asked, printed, strict=True)]


def _readings(sample: Sample, line: str) -> list[Any]:
    newer, older = (
        None if each in {"!", "null"} else json.loads(each) for each in line.split("\t")
    )
    return [newer, older] if sample.kind.before_5_5 else [newer, newer]


def _fault(sample: Sample, readings: list[Any]) -> str | None:
    """What is wrong with our reading of a text."""
    accepted = [each for each in readings if each is not None]
    try:
        ours = _ours(sample)
    except ProtocolError as exc:
        excused = not accepted or sample.damaged or _lacks(accepted, str(exc))
        return None if excused else f"ours {exc}"
    return None if not accepted or _same(accepted, ours) else f"ours {ours}"


def _ours(sample: Sample) -> Any:
    if sample.kind is HEADER:
        return json_fields.decode(sample.text.encode())
    return fastjson.decode(sample.text.encode(), sample.kind.shape)


def _lacks(accepted: list[Any], refusal: str) -> bool:
    """Whether we refuse a text because of a member without which Java's handlers fail."""
    _, missing, names = refusal.partition("missing ")
    name = names.partition(" - at")[0].partition(",")[0]
    return bool(missing) and any(f'"{name}": null' in json.dumps(each) for each in accepted)


def _same(java: list[Any], ours: Any) -> bool:
    """Whether ours is what one of Java's readers understood; null is the default of a field."""
    if isinstance(ours, Frame):
        return all(
            _same_member(java, name, getattr(ours, field), default)
            for name, field, default in _HEADER_FIELDS
        )
    if isinstance(ours, msgspec.Struct):
        return all(
            _same_member(java, field.encode_name, getattr(ours, field.name), _default(field))
            for field in msgspec.structs.fields(ours)
        )
    if isinstance(ours, dict):
        ours = [[key, item] for key, item in ours.items()]
    if isinstance(ours, list):
        return any(_same_items(each, ours) for each in java)
    return any(_same_scalar(each, ours) for each in java)


def _same_scalar(java: Any, ours: Any) -> bool:
    match ours:
        case Enum():
            return bool(java == ours.name)
        case bytes():
            return b64decode(java) == ours
        case float():
            return math.isclose(float(java), ours)
    return bool(_plain(java) == ours)


_HEADER_FIELDS = (
    ("code", "code", 0),
    ("flag", "flag", 0),
    ("version", "version", 0),
    ("opaque", "opaque", 0),
    ("language", "language", Language.OTHER.name),
    ("remark", "remark", None),
    ("extFields", "fields", None),
)


def _same_member(java: list[Any], name: str, ours: Any, default: Any) -> bool:
    alias = f"is{name[0].upper()}{name[1:]}"  # a field named as its getter
    found = [each.get(name, each.get(alias)) for each in java if name in each or alias in each]
    if not found or (ours == default and (None in found or name in _OTHER_DEFAULTS)):
        return True
    if ours is None:
        return None in found
    return _same([each for each in found if each is not None], ours)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def _same_items(java: list[Any], ours: list[Any]) -> bool:
    """Compare items, or entries as pairs, in any order; nulls count as absent."""
    left = [each for each in java if each is not None and not _is_null_entry(each)]
    same = [[_same_item(each, item) for each in left] for item in ours]
    return all(map(any, same)) and all(map(any, zip(*same, strict=True))) if same else not left


def _same_item(java: Any, ours: Any) -> bool:
    if isinstance(ours, list):  # an entry of a map
        return _same([java[0]], ours[0]) and _same([java[1]], ours[1])
    return _same([java], ours)


def _is_null_entry(item: Any) -> bool:
    return isinstance(item, list) and None in item


def _plain(text: object) -> object:
    """Half a surrogate pair becomes a replacement character."""
    if not isinstance(text, str):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
