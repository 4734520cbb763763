"""Hypothesis strategies for headers and bodies, read off their declarations."""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

Strategy = st.SearchStrategy[Any]

LONG_MAX = 2**63 - 1


def instances(shape: Any) -> Strategy:
    """Values of a struct type, or of anything else that may stand in one."""
    return _of(inspect.type_info(shape))


def _of(kind: inspect.Type) -> Strategy:
    return _MAKERS[type(kind)](kind)


def _integers(kind: inspect.IntType) -> Strategy:
    return st.integers(
        -LONG_MAX if kind.ge is None else kind.ge, LONG_MAX if kind.le is None else kind.le
    )


def _one_of(kind: inspect.UnionType) -> Strategy:
    """A number beside an enum is another spelling of its members, which becomes the member."""
    enumerated = any(isinstance(each, inspect.EnumType) for each in kind.types)
    return st.one_of(
        [_of(each) for each in kind.types if not (enumerated and isinstance(each, inspect.IntType))]
    )


def _dictionaries(kind: inspect.DictType) -> Strategy:
    return st.dictionaries(_of(kind.key_type), _of(kind.value_type), max_size=2)


@cache
def _structs(cls: type[msgspec.Struct]) -> Strategy:
    return st.builds(cls, **{each.name: _values(each) for each in msgspec.structs.fields(cls)})


def _values(field: msgspec.structs.FieldInfo) -> Strategy:
    """What a field may hold on the wire: absent reads as the default, which need not be None."""
    found = _of(inspect.type_info(field.type))
    return found if field.required or field.default is None else found.filter(_is_given)


def _is_given(value: object) -> bool:
    return value is not None


_MAKERS: dict[type[inspect.Type], Callable[[Any], Strategy]] = {
    inspect.StructType: lambda kind: _structs(kind.cls),
    inspect.IntType: _integers,
    inspect.UnionType: _one_of,
    inspect.DictType: _dictionaries,
    inspect.ListType: lambda kind: st.lists(_of(kind.item_type), max_size=2),
    inspect.EnumType: lambda kind: st.sampled_from(kind.cls),
    inspect.StrType: lambda _: st.text(max_size=20),
    inspect.BoolType: lambda _: st.booleans(),
    inspect.FloatType: lambda _: st.floats(allow_nan=False, allow_infinity=False),
    inspect.BytesType: lambda _: st.binary(max_size=20),
    inspect.NoneType: lambda _: st.none(),
    inspect.AnyType: lambda _: st.text(max_size=5),
}
