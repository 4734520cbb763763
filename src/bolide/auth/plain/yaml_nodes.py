"""YAML as nodes that know their line; nothing in a file makes an object or runs code.

Nodes are built from the event stream without recursion, so that no file exhausts the stack.
Aliases and tags are refused: no ACL file needs them, and aliases let a small file describe a huge
one. A key that occurs twice is refused, since one of the two would be ignored silently.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from bolide.errors import ConfigError

MAX_SIZE = 2 * 1024 * 1024
"""Bytes of a file; some ten thousand accounts."""

_MAX_DEPTH = 8
_TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_TRUE = {"yes", "true", "on"}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the compiled parser, if there is one
_RESOLVER = yaml.resolver.Resolver()


class BadAclFile(ConfigError):
    """A file of access rules is invalid: `file:line: reason`."""


@dataclass(slots=True)
class Node:
    """A scalar, a list or a mapping."""

    file: str
    line: int
    tag: str
    """`str`, `int`, `bool`, `null` and so on; `seq` and `map`."""
    text: str = ""
    items: list["Node"] = field(default_factory=list)
    """Of a list; of a mapping, keys and values in turn."""

    def error(self, reason: object) -> BadAclFile:
        return BadAclFile(f"{self.file}:{self.line}: {reason}")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is given: null, or an empty text."""
        return self.tag == "null" or (self.tag == "str" and not self.text.strip())

    def as_text(self, name: str) -> str:
        """The text; a number counts as its digits, as in Java.

        A number in another notation is refused, because Java would rewrite it: 0123456 is 42798.
        """
        if self.tag == "str" or (self.tag == "int" and self.text == _plain_digits(self.text)):
            return self.text
        if self.tag in {"seq", "map"}:
            raise self.error(f"{name} must be a text")
        raise self.error(f"{name} is read as {self.tag}: put it in quotes")

    def as_bool(self, name: str) -> bool:
        text = self.text.lower()
        if self.tag == "bool":
            return text in _TRUE
        if self.is_empty:
            return False
        if (self.tag == "str" and text in {"true", "false"}) or self.text in {"0", "1"}:
            return text in {"true", "1"}
        raise self.error(f"{name} must be true or false")

    def as_number(self, name: str) -> int:
        if self.tag in {"int", "str"} and _NUMBER.fullmatch(self.text):
            return int(self.text)
        raise self.error(f"{name} must be a whole number")

    def as_list(self, name: str) -> list["Node"]:
        """The items; nothing is an empty list."""
        if self.is_empty:
            return []
        if self.tag != "seq":
            raise self.error(f"{name} must be a list")
        return self.items

    def as_mapping(self, name: str, normal: Callable[[str], str] = str) -> dict[str, "Node"]:
        """The values by key.

        Args:
            normal: how spellings of a key are made equal.
        """
        if self.is_empty:
            return {}
        if self.tag != "map":
            raise self.error(f"{name} must be a mapping")
        found: dict[str, Node] = {}
        for key, value in zip(self.items[::2], self.items[1::2], strict=True):
            spelling = normal(key.as_text(f"a key of {name}"))
            if spelling in found:
                raise key.error(f"{key.text} occurs twice in {name}")
            found[spelling] = value
        return found


def read_nodes(data: bytes, file: str, limit: int = MAX_SIZE) -> Node:
    """Read the one document of a file; an empty file is a null.

    Args:
        limit: the most bytes of a file.

    Raises:
        BadAclFile: it is too large, not YAML, or uses what is refused here.
    """
    if len(data) > limit:
        raise BadAclFile(f"{file}: {len(data)} bytes are over the limit of {limit}")
    try:
        return _document(yaml.parse(data, Loader=_LOADER), file)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        reason = getattr(exc, "problem", None) or "not a text of YAML"
        raise BadAclFile(f"{file}{line}: {reason}") from None  # it quotes secrets
    except UnicodeError as exc:
        raise BadAclFile(f"{file}: not UTF-8") from exc


def _document(events: Iterator[Any], file: str) -> Node:
    root = Node(file, 1, "null")
    documents = 0
    stack: list[Node] = []
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise BadAclFile(f"{file}:{line}: a file has one document, this is the second")
        elif isinstance(event, yaml.AliasEvent):
            raise BadAclFile(f"{file}:{line}: aliases are not supported, write the value again")
        elif isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
        elif isinstance(event, yaml.NodeEvent):
            node = _node(event, file, line)
            if stack:
                stack[-1].items.append(node)
            else:
                root = node
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append(node)
            if len(stack) > _MAX_DEPTH:
                raise node.error("no list or mapping is nested as deeply")
    return root


def _node(event: Any, file: str, line: int) -> Node:
    if isinstance(event, yaml.ScalarEvent):
        tag = event.tag or _RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit)
        text = event.value
    else:
        kind = "seq" if isinstance(event, yaml.SequenceStartEvent) else "map"
        tag, text = event.tag or _TAG + kind, ""
    if not tag.startswith(_TAG) or (event.tag and tag != f"{_TAG}str"):
        raise BadAclFile(f"{file}:{line}: the tag {tag} is not supported")
    return Node(file, line, tag.removeprefix(_TAG), text)


def _plain_digits(text: str) -> str:
    return str(int(text)) if text.isdecimal() and text.isascii() else ""
