"""How a page is declared: its path, its place in the navigation, and what builds it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from bolide.console.ui.view import View
from bolide.operations.declaration import Role

Build = Callable[..., None]
"""Gets the view, and the parameters of the path by name. It does not ask the cluster."""


class Section(StrEnum):
    """The groups of the navigation, in its order."""

    OVERVIEW = "Overview"
    MESSAGING = "Messaging"
    HELD = "Held messages"
    DATA = "Data"
    SECURITY = "Security"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """A page of the console."""

    path: str
    """With parameters in braces: `/topics/{topic}`."""
    title: str
    """In English; translated when it is shown."""
    build: Build
    section: Section | None
    """None keeps it out of the navigation."""
    icon: str
    order: int
    """Of its section's entries."""
    role: Role


PAGES: dict[str, PageSpec] = {}
"""By path."""


def page(
    path: str,
    *,
    title: str,
    section: Section | None = None,
    icon: str = "",
    order: int = 0,
    role: Role = Role.VIEWER,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a function as the builder of a page."""

    def declare(build: Callable[..., None]) -> Callable[..., None]:
        PAGES[path] = PageSpec(
            path=path, title=title, build=build, section=section, icon=icon, order=order, role=role
        )
        return build

    return declare


__all__ = ["PAGES", "PageSpec", "Section", "View", "page"]
