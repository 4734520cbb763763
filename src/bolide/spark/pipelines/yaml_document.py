"""A YAML file whose nodes know their location, so that errors name line and column."""

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bolide.errors import ConfigError

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_BOOL = "tag:yaml.org,2002:bool"
_NULL = "tag:yaml.org,2002:null"
_TRUE = {"yes", "true", "on"}


class BadFile(ConfigError):
    """Invalid content of a file: `file:line:column: reason`."""


class YamlNode:
    """A node with its location."""

    def __init__(self, file: Path, node: Any, title: str) -> None:
        self._file = file
        self._node = node
        self.title = title

    @property
    def place(self) -> str:
        mark = self._node.start_mark
        return f"{self._file}:{mark.line + 1}:{mark.column + 1}"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    def error(self, reason: str) -> BadFile:
        return BadFile(f"{self.place}: {reason}")

    def text(self) -> str:
        """The text, `${NAME}` replaced from the environment; a list is joined with commas."""
        if isinstance(self._node, yaml.SequenceNode):
            return ",".join(item.text() for item in self.items())
        if not isinstance(self._node, yaml.ScalarNode) or self._node.tag == _NULL:
            raise self.error(f"{self.title} must be a text")
        if self._node.tag == _BOOL:
            return "true" if self._node.value.lower() in _TRUE else "false"
        return _VARIABLE.sub(self._variable, self._node.value)

    def items(self) -> list["YamlNode"]:
        """The items of a list; a scalar counts as a list of one."""
        if isinstance(self._node, yaml.ScalarNode):
            return [self]
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error(f"{self.title} must be a list")
        return [YamlNode(self._file, node, self.title) for node in self._node.value]

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def mapping(self) -> "YamlMapping":
        if not self.is_mapping:
            raise self.error(f"{self.title} must be a table of keys and values")
        return YamlMapping(self._file, self._node, self.title)

    def checked(self, make: Callable[[str], T]) -> T:
        """Convert the text; a ConfigError gets the location of the node."""
        try:
            return make(self.text())
        except BadFile:
            raise
        except ConfigError as exc:
            raise self.error(str(exc)) from exc

    def _variable(self, found: re.Match[str]) -> str:
        value = os.environ.get(found[1], found[2])
        if value is None:
            raise self.error(f"the environment has no variable {found[1]}")
        return value


class YamlMapping(Mapping[str, YamlNode]):
    """A mapping in the order of the file."""

    def __init__(self, file: Path, node: Any, title: str) -> None:
        self._own = YamlNode(file, node, title)
        self._values: dict[str, YamlNode] = {}
        self._keys: dict[str, YamlNode] = {}
        for key, value in node.value:
            self._add(YamlNode(file, key, "a key"), YamlNode(file, value, str(key.value)))

    def __getitem__(self, key: str) -> YamlNode:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def error(self, reason: str) -> BadFile:
        return self._own.error(reason)

    def require(self, key: str) -> YamlNode:
        if key not in self._values:
            raise self.error(f"{self._own.title} needs the key {key!r}")
        return self._values[key]

    def find_text(self, key: str) -> str | None:
        return self._values[key].text() if key in self._values else None

    def check_keys(self, known: Collection[str]) -> None:
        """Raises BadFile for the first unknown key."""
        for key in self._values:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {_listed(known)}"
                raise self._keys[key].error(f"unknown key {key!r} in {self._own.title}{hint}")

    def texts(self, without: Collection[str] = ()) -> dict[str, str]:
        return {key: value.text() for key, value in self.items() if key not in without}

    def checked(self, make: Callable[[], T]) -> T:
        """Convert several keys; a ConfigError gets the location of the key it names."""
        try:
            return make()
        except BadFile:
            raise
        except ConfigError as exc:
            words = set(re.findall(r"\w+", str(exc).lower()))
            named = [key for key in self._keys if key.lower() in words]
            raise (self._keys[named[0]] if named else self._own).error(str(exc)) from exc

    def _add(self, key: YamlNode, value: YamlNode) -> None:
        name = key.text()
        if name in self._values:
            raise key.error(f"the key {name!r} is there twice")
        self._keys[name], self._values[name] = key, value


def read_mapping(file: Path, title: str) -> YamlMapping:
    """Read a file whose content is one mapping.

    Raises:
        BadFile: the file is not YAML, or not a mapping; names the line.
        ConfigError: the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"cannot read {file}: {exc}") from exc
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        raise BadFile(f"{place}: {exc.problem or exc.context}") from exc
    except yaml.YAMLError as exc:  # a character that YAML does not allow
        raise BadFile(f"{file}: {exc}") from exc
    if node is None:
        raise BadFile(f"{file}:1:1: the file is empty")
    return YamlNode(file, node, title).mapping()


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
