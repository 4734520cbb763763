"""Properties of elements whose values are not constants.

`element.props("…")` parses a text. A value that comes from a server, from a user or from a
translation could end the value and go on with a property of its own, `innerHTML` for example: a
backslash at its end is enough. So texts are never put into such a text; they are set here.
"""

from typing import TypeVar

from nicegui.element import Element

E = TypeVar("E", bound=Element)


def set_props(element: E, **values: str) -> E:
    """Set properties as they are; `_` in a name stands for `-`."""
    for name, value in values.items():
        element.props[name.replace("_", "-")] = value
    return element


def name_element(element: E, text: str) -> E:
    """Name an element for screen readers."""
    return set_props(element, aria_label=text)


def link_to(element: E, path: str) -> E:
    """Let an element lead to a page of the console.

    Raises:
        ValueError: it would lead elsewhere, or run a script.
    """
    if not path.startswith("/") or path.startswith(("//", "/\\")):
        raise ValueError(f"not a path of the console: {path!r}")
    return set_props(element, href=path)
