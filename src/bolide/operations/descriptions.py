"""What the source says about parameters and fields, for the schemas that programs and agents read.

Parameters are described in the `Args:` section of a docstring, fields of a dataclass by the text
below each, as everywhere in this package.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields):\s*$")
_ARGUMENT = re.compile(r"^    (\w+): ?(.*)$")


def split_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The text of a docstring without its sections, and what `Args:` says of each parameter."""
    text: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current = "", ""
    for line in inspect.cleandoc(function.__doc__ or "").splitlines():
        if found := _SECTION.match(line):
            section = found[1]
        elif not section or (line and not line.startswith(" ")):
            section = ""
            text.append(line)
        elif section == "Args":
            if found := _ARGUMENT.match(line):
                current = found[1]
                arguments[current] = [found[2]]
            elif current:
                arguments[current].append(line.strip())
    described = {name: " ".join(filter(None, lines)) for name, lines in arguments.items()}
    return "\n".join(text).strip(), described


@cache
def describe_fields(kind: type) -> dict[str, str]:
    """The texts below the fields of a class; empty if its source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    defined = tree.body[0]
    assert isinstance(defined, ast.ClassDef)
    described = {}
    for statement, after in zip(defined.body, defined.body[1:], strict=False):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                described[name] = " ".join(text.split())
    return described


def dataclasses_in(annotation: Any) -> dict[str, type]:
    """All dataclasses that values of a type are made of, by name."""
    found: dict[str, type] = {}
    _collect(annotation, found)
    return found


def _collect(annotation: Any, found: dict[str, type]) -> None:
    origin = getattr(annotation, "__origin__", annotation)
    for argument in get_args(annotation):
        _collect(argument, found)
    if isinstance(origin, type) and is_dataclass(origin) and origin.__name__ not in found:
        found[origin.__name__] = origin
        for field in get_type_hints(origin).values():
            _collect(field, found)
