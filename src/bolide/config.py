"""Settings: declared once as dataclass fields, loaded from RocketMQ's files and the environment.

A setting is a field made by `option`: type, default, bounds and one sentence. Its key is the
field's name in camel case unless `key` is given. There are three kinds of keys: honoured (a field),
known to RocketMQ but without effect here (`Ignored`, with a warning), and unknown (a warning with
the nearest known key, or an error if strict). Later sources win: file, environment, command line.

Some settings are fixed: no request to the running server changes them, whoever sends it. Paths and
secrets always are; others declare it where they are declared.
"""

import dataclasses
import difflib
import logging
import os
import re
import stat
import threading
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from bolide import properties, snapshot
from bolide.errors import ConfigError
from bolide.private_files import FILE_MODE, SECRET_MODE

log = logging.getLogger(__name__)

C = TypeVar("C")

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TRUE_FALSE = {"true": True, "false": False}
_one_change = threading.Lock()


class Unit(StrEnum):
    """What a number counts in a file; a number without a unit is a count."""

    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"
    TIMESTAMP = "milliseconds since 1970"
    BYTES = "bytes"
    PAGES = "pages of 4 KiB"
    PERCENT = "percent"


_UNIT_OF_SCALE = {1000: Unit.MILLISECONDS, 100: Unit.PERCENT}


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: its key, type, default, bounds and text form."""

    key: str
    field: str
    kind: type
    default: object
    doc: str
    low: float | None
    high: float | None
    scale: int
    ours: bool
    live: bool
    secret: bool
    fixed: bool
    aliases: tuple[str, ...] = ()
    separator: str = ";"
    item: type = str
    unit: Unit | None = None

    def parse(self, text: str) -> object:
        """Parse a text.

        Raises:
            ConfigError: the text is invalid; names the key, the value and the bound.
        """
        try:
            value = self._convert(text.strip())
        except ValueError as exc:
            shown = "(secret)" if self.secret else repr(text)
            raise ConfigError(f"{self.key}={shown}: {exc}") from exc
        if isinstance(value, int) and not isinstance(value, bool):
            self._check_bounds(value)
            return value / self.scale if self.scale > 1 else value
        return value

    def format(self, value: object) -> str:
        """Format a value as RocketMQ prints it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float) and self.scale > 1:
            return str(round(value * self.scale))
        if isinstance(value, tuple):
            return self.separator.join(map(str, value))
        return "" if value is None else str(value)

    def _convert(self, text: str) -> object:
        if self.kind is bool:
            return self._truth(text)
        if self.kind is int or self.scale > 1:
            if not _WHOLE_NUMBER.fullmatch(text):
                raise ValueError("must be a whole number" + self._bounds())
            return int(text)
        if issubclass(self.kind, StrEnum):
            return _member(self.kind, text)
        if self.kind is tuple:
            return self._items(text)
        if self.kind is Path:
            return self._path(text)
        return text if text or self.default is not None else None

    def _truth(self, text: str) -> bool | None:
        if not text and self.default is None:
            return None
        if text.lower() not in _TRUE_FALSE:
            raise ValueError("must be true or false")
        return _TRUE_FALSE[text.lower()]

    def _items(self, text: str) -> tuple[object, ...] | None:
        words = [word.strip() for word in text.split(self.separator)]
        items = tuple(self._path(word) if self.item is Path else word for word in words if word)
        return items or (None if self.default is None else ())

    def _path(self, text: str) -> Path | None:
        if not text and self.default is not None:
            raise ValueError("must be a path")
        try:
            return Path(text).expanduser() if text else None
        except RuntimeError as exc:  # ~name of an unknown user
            raise ValueError(str(exc)) from exc

    def _check_bounds(self, value: int) -> None:
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            shown = "(secret)" if self.secret else value
            raise ConfigError(f"{self.key}={shown}: must be a whole number{self._bounds()}")

    def _bounds(self) -> str:
        if self.low is not None and self.high is not None:
            return f" from {self.low:.0f} to {self.high:.0f}"
        return f" of at least {self.low:.0f}" if self.low is not None else ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key of RocketMQ without effect here: its default in RocketMQ, and why.

    A fixed one is a path, an address or a class in RocketMQ. It is refused over the wire, so that
    no request can put it into a file that a broker of RocketMQ reads later. The value of a secret
    one is never shown.
    """

    default: str
    reason: str
    fixed: bool = False
    secret: bool = False


def option(  # noqa: PLR0913  a declaration reads best as one call
    default: Any,
    doc: str,
    *,
    key: str | None = None,
    bounds: tuple[float, float | None] | None = None,
    scale: int = 1,
    ours: bool = False,
    live: bool = False,
    secret: bool = False,
    fixed: bool = False,
    aliases: tuple[str, ...] = (),
    separator: str = ";",
    unit: Unit | None = None,
) -> Any:
    """Declare a setting as a dataclass field.

    Args:
        default: the value, or a function that makes it.
        doc: the effect, in one sentence.
        key: the key in files, if it is not the field's name in camel case.
        bounds: lowest and highest value (None: no highest), in the unit of the files.
        scale: file units per unit of the field: 1000 for milliseconds held as seconds.
        ours: RocketMQ has no such key.
        live: a change at run time takes effect at once.
        secret: the value is never shown.
        fixed: no request changes it; paths and secrets are fixed anyway.
        aliases: older spellings of the key, accepted wherever the key is.
        separator: separates the items of a list.
        unit: of a number in files; by default that of the scale.
    """
    low, high = bounds or (None, None)
    metadata = {
        "doc": doc, "key": key, "low": low, "high": high, "scale": scale,
        "ours": ours, "live": live, "secret": secret, "fixed": fixed,
        "aliases": aliases, "separator": separator,
        "unit": unit or _UNIT_OF_SCALE.get(scale),
    }  # fmt: skip
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata, repr=not secret)
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


def options_of(kind: type[Any]) -> dict[str, Option]:
    """Return all settings of a config class by key, in declaration order.

    A class may name fields in `__ours__` that RocketMQ has in another server only.
    """
    hints = typing.get_type_hints(kind)
    found = {}
    for item in dataclasses.fields(kind):
        meta = dict(item.metadata)
        key = meta.pop("key") or _camel(item.name)
        default = item.default_factory() if callable(item.default_factory) else item.default
        kind_of_field, kind_of_item = _plain(hints[item.name])
        meta["ours"] |= item.name in getattr(kind, "__ours__", ())
        meta["fixed"] |= meta["secret"] or Path in (kind_of_field, kind_of_item)
        found[key] = Option(
            key=key, field=item.name, kind=kind_of_field, item=kind_of_item, default=default, **meta
        )
    return found


def fixed_keys(kind: type[Any], ignored: Mapping[str, Ignored] | None = None) -> set[str]:
    """Keys that no request may change, including old spellings and keys without effect."""
    fixed = [found for found in options_of(kind).values() if found.fixed]
    keys = {spelling for found in fixed for spelling in (found.key, *found.aliases)}
    return keys | {key for key, item in (ignored or {}).items() if item.fixed or item.secret}


def secret_keys(kind: type[Any], ignored: Mapping[str, Ignored] | None = None) -> set[str]:
    """Keys whose values are never shown."""
    secrets = {key for key, found in options_of(kind).items() if found.secret}
    return secrets | {key for key, item in (ignored or {}).items() if item.secret}


def ignored_texts(ignored: Mapping[str, Ignored], given: Mapping[str, str]) -> dict[str, str]:
    """Keys without effect as they are shown: with the values given, except those of secrets."""
    return {
        key: item.default if item.secret else given.get(key, item.default)
        for key, item in ignored.items()
    }


def load(
    kind: type[C],
    values: Mapping[str, str],
    *,
    ignored: Mapping[str, Ignored] | None = None,
    others: Collection[str] = (),
    strict: bool = False,
) -> C:
    """Make a config from keys and texts; warns about keys without effect and unknown keys.

    Args:
        others: keys in the same file that belong to other configs.

    Raises:
        ConfigError: a value is invalid, or a key is unknown and `strict` is set.
    """
    options = options_of(kind)
    chosen = {}
    for key, text in _respelled(options, values).items():
        if key in options:
            chosen[options[key].field] = options[key].parse(text)
        elif ignored and key in ignored:
            log.warning("%s has no effect: %s", key, ignored[key].reason)
        elif key not in others:
            _report_unknown(key, [*options, *(ignored or ()), *others], strict=strict)
    return kind(**chosen)


def to_texts(config: Any) -> dict[str, str]:
    """Return all settings of a config as keys and texts, without secrets and unset values."""
    return {
        key: found.format(value)
        for key, found in options_of(type(config)).items()
        if (value := getattr(config, found.field)) is not None and not found.secret
    }


def read_file(path: Path, secrets: Collection[str] = ()) -> dict[str, str]:
    """Read the keys and texts of a RocketMQ `key=value` file.

    Args:
        secrets: keys that every user of the machine must not read; logs a warning if they can.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read()
    except OSError as exc:
        raise ConfigError(f"cannot read the configuration file {path}: {exc}") from exc
    texts = _parsed(data, path)
    if mode & stat.S_IROTH and any(texts.get(key, "").strip() for key in secrets):
        log.warning("%s holds secrets and every user can read it: chmod 600 %s", path, path)
    return texts


def _parsed(data: bytes, path: Path) -> dict[str, str]:
    try:
        return properties.parse(data.decode())
    except UnicodeDecodeError as exc:
        # A comment in another encoding is common and harmless; a wrong value would be noticed.
        log.warning("%s is not valid UTF-8 (%s); replacing the invalid bytes", path, exc)
        return properties.parse(data.decode(errors="replace"))


def change_file(path: Path, changes: Mapping[str, str], secrets: Collection[str]) -> None:
    """Write changed settings to a file; its other lines stay byte for byte. Blocks.

    One thread at a time: a NameServer and the controller in it have the same file.

    Args:
        secrets: keys whose presence makes the file readable by its owner only.
    """
    with _one_change:
        # Line ends and foreign encodings survive too.
        before = path.read_bytes().decode(errors="surrogateescape") if path.exists() else ""
        text = properties.edit(before, changes)
        mode = FILE_MODE if properties.parse(text).keys().isdisjoint(secrets) else SECRET_MODE
        snapshot.replace(path, text.encode(errors="surrogateescape"), mode=mode)


def from_environment(
    kind: type, prefix: str, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the settings given as PREFIX_FIELD_NAME in the environment."""
    environment = os.environ if environment is None else environment
    return {
        key: environment[name]
        for key, found in options_of(kind).items()
        if (name := variable(prefix, found)) in environment
    }


def from_reference(text: str) -> str:
    """Return the environment variable that `${NAME}` names; any other text as it is.

    So that no secret has to be on a command line, which other users of the machine can see.

    Raises:
        ConfigError: there is no such variable.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None:
        return text
    if found[1] not in os.environ:
        raise ConfigError(f"{text}: the environment has no variable {found[1]}")
    return os.environ[found[1]]


def variable(prefix: str, found: Option) -> str:
    """The environment variable of a setting."""
    return f"{prefix}_{found.field}".upper()


class ConfigCell(Generic[C]):
    """A config that may change at run time, and its change listeners."""

    def __init__(self, value: C, check: Callable[[C], object] = lambda _: None) -> None:
        self.value = value
        self._check = check
        self._listeners: list[Callable[[C], None]] = []

    def on_change(self, listener: Callable[[C], None]) -> None:
        self._listeners.append(listener)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Listeners that are added inside the block are removed at its end."""
        before = list(self._listeners)
        try:
            yield
        finally:
            self._listeners = before

    def changes(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the known keys of `texts` whose value would change; changes nothing yet.

        Raises:
            ConfigError: a value is invalid, or contradicts other settings.
        """
        options = options_of(type(self.value))
        texts = _respelled(options, texts)
        known = {key: options[key].parse(text) for key, text in texts.items() if key in options}
        fields = {options[key].field: value for key, value in known.items()}
        self._check(dataclasses.replace(self.value, **fields))  # type: ignore[type-var]
        return {
            key: options[key].format(value)
            for key, value in known.items()
            if value != getattr(self.value, options[key].field)
        }

    def apply(self, changes: Mapping[str, str]) -> None:
        """Apply the result of `changes` and call the listeners."""
        options = options_of(type(self.value))
        fields = {options[key].field: options[key].parse(text) for key, text in changes.items()}
        if not fields:
            return
        self.value = dataclasses.replace(self.value, **fields)  # type: ignore[type-var]
        for listener in self._listeners:
            listener(self.value)


def _respelled(options: Mapping[str, Option], texts: Mapping[str, str]) -> dict[str, str]:
    """Replace old spellings of keys; if both are given the new spelling wins."""
    keys = {alias: key for key, found in options.items() for alias in found.aliases}
    old = {key: text for key, text in texts.items() if key in keys}
    if old:
        log.info("old spellings: %s", ", ".join(f"{key} is {keys[key]}" for key in old))
    renamed = {keys[key]: text for key, text in old.items()}
    return renamed | {key: text for key, text in texts.items() if key not in old}


def _report_unknown(key: str, known: list[str], *, strict: bool) -> None:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    if strict:
        raise ConfigError(f"unknown key {key}{hint}")
    log.warning("unknown key %s is ignored%s", key, hint)


def _member(kind: type[StrEnum], text: str) -> StrEnum:
    for member in kind:
        if text.lower() == member.value.lower():
            return member
    raise ValueError(f"must be one of {', '.join(kind)}")


def _plain(hint: Any) -> tuple[type, type]:
    """Return the type of a field without None, and the type of a list's items."""
    if isinstance(hint, types.UnionType):
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    if typing.get_origin(hint) is tuple:
        return tuple, typing.get_args(hint)[0]
    return typing.cast("type", hint), str


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
