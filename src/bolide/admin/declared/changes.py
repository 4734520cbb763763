"""The steps of a plan, as values, and how they are told."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from bolide.admin.declared.fields import (
    READ_QUEUES,
    RULES,
    WRITE_QUEUES,
    Fields,
    Kind,
    plain_value,
)
from bolide.admin.errors import AdminError

QUEUES: Final = (READ_QUEUES, WRITE_QUEUES)


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"

    @property
    def mark(self) -> str:
        return {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}[self]


@dataclass(frozen=True, slots=True)
class Difference:
    """One field, or one item of a field with several, before and after a change."""

    field: str
    old: str | None
    new: str | None
    is_default: bool = False
    """The new value is what a new object has anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be done with one object at one broker."""

    action: Action
    kind: Kind
    name: str
    broker: str
    """Label of the broker."""
    address: str
    before: Fields = field(default_factory=dict)
    after: Fields = field(default_factory=dict)
    """All fields that the object then has, those of the broker that stay included."""
    secret: str | None = field(default=None, repr=False)
    is_gone_everywhere: bool = False
    """Of a deletion: no broker is to have the object."""

    @property
    def differences(self) -> tuple[Difference, ...]:
        """Field by field; of an object to be deleted, none."""
        if self.action is Action.DELETE:
            return ()
        return tuple(
            difference
            for name in RULES[self.kind]
            if name in self.after and self.before.get(name) != self.after[name]
            for difference in _differences(self.kind, name, self.before.get(name), self.after[name])
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, in the order in which they are made, and what an operator should know."""

    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()
    is_locked_out: bool = False
    """Afterwards who makes the changes may not manage the cluster any more."""


class PlanRefused(AdminError):
    """A document cannot be applied; nothing was changed."""

    def __init__(self, problems: Sequence[str]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"nothing is changed: {problems[0]}{more}")
        self.problems = tuple(problems)


def attribute_changes(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """As brokers want them: `+name` sets an attribute, `-name` removes one."""
    added = {f"+{name}": value for name, value in new.items() if old.get(name) != value}
    return added | {f"-{name}": "" for name in old if name not in new}


def summary(changes: Iterable[Change]) -> list[tuple[Change, list[str]]]:
    """Changes that are the same at several brokers, once, with the labels of the brokers."""
    found: dict[object, tuple[Change, list[str]]] = {}
    for change in changes:
        key = (change.kind, change.name, change.action, change.differences)
        found.setdefault(key, (change, []))[1].append(change.broker)
    return [*found.values()]


def _differences(kind: Kind, name: str, old: Any, new: Any) -> Iterator[Difference]:
    if not _has_items(kind, name):
        shown = None if old is None else value_text(kind, name, old)
        is_default = new == RULES[kind][name].default and name not in QUEUES
        yield Difference(name, shown, value_text(kind, name, new), is_default)
        return
    before: Mapping[str, Any] = old or {}
    for key in sorted({*before, *new}):
        if before.get(key) != new.get(key):
            yield Difference(f"{name}[{key}]", _item(before.get(key)), _item(new.get(key)))


def _has_items(kind: Kind, name: str) -> bool:
    return isinstance(RULES[kind][name].default, dict) and name != "groupRetryPolicy"


def value_text(kind: Kind, name: str, value: Any) -> str:
    return _item(plain_value(kind, name, value)) or ""


def _item(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case {"resource": _, "actions": list(actions), "decision": decision}:
            sources = ", ".join(value.get("sourceIps", ()))
            return f"{decision} {','.join(actions)}{f' from {sources}' if sources else ''}"
        case _:
            return msgspec.json.encode(value).decode()
