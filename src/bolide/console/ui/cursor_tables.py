"""Tables of lists that go on by a cursor: there is no number of pages, only a next part."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from nicegui import ui

from bolide.console.ui.panels import empty_state
from bolide.console.ui.props import name_element
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.operations.views import Failure, Page

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """Some rows of a list."""

    items: Sequence[T]
    next: str
    """Cursor of the next part; empty after the last."""
    summary: str = ""
    """What the footer says of it."""
    failures: list[Failure] = field(default_factory=list)


class CursorTable(DataTable[T]):
    """A `DataTable` without page numbers: it goes to the next part, back, and to the first."""

    def __init__(
        self,
        view: View,
        columns: Sequence[Column],
        load_part: Callable[[str, int], Awaitable[Part[T]]],
        row: Callable[[T], Row],
        **options: Any,
    ) -> None:
        """Create the table in the current place.

        Args:
            view: the page.
            columns: from left to right.
            load_part: gets the cursor, empty for the first part, and how many rows are wanted.
            row: the cells of an item; its `key` tells the rows apart.
            options: those of `DataTable` but for search and sorting.
        """
        self._load_part = load_part
        self._cursor = view.query.get(f"{options.get('prefix', '')}cursor", "")
        self._before: list[str] = []
        self._next = ""
        self._summary = ""
        self._nothing = options.get("empty", "") or view.t("Nothing here yet.")
        self._nothing_hint = options.get("empty_hint", "")
        super().__init__(view, columns, self._load_as_page, row, **options)

    def first_page(self) -> None:
        """Load the first part: the filters have changed."""
        self._turn_to_first(push=False)

    async def _load_as_page(self, request: ListRequest) -> Page[T]:
        part = await self._load_part(self._cursor, request.size)
        self._next, self._summary = part.next, part.summary
        items = list(part.items)
        return Page(
            items=items, total=len(items), page=1, size=request.size, failures=part.failures
        )

    def _show_unknown(self) -> None:
        if self._next:
            self._show_empty()
        else:
            super()._show_unknown()

    def _show_empty(self) -> None:
        self._table = None
        self._body.clear()
        with self._body:
            if self._next:
                empty_state(self._view.t("Nothing matches in this part."), hint=self._summary)
            else:
                empty_state(self._nothing, hint=self._nothing_hint)

    def _show_footer(self) -> None:
        t = self._view.t
        shown = (self._summary, bool(self._next), bool(self._cursor), bool(self._before))
        if getattr(self, "_parts_shown", None) == shown and self._footer.default_slot.children:
            return
        self._parts_shown = shown
        self._footer.clear()
        with self._footer:
            if self._summary:
                ui.label(self._summary).props('role="status"')
            if self._cursor or self._next:
                self._button("first_page", t("First part"), self._turn_to_first, bool(self._cursor))
                self._button("chevron_left", t("Previous page"), self._back, bool(self._before))
                self._button("chevron_right", t("Next page"), self._forth, bool(self._next))

    def _button(self, icon: str, label: str, act: Callable[[], None], enabled: bool) -> None:
        button = ui.button(icon=icon, on_click=act)
        name_element(button.props("flat round dense"), label)
        button.set_enabled(enabled)

    def _turn_to_first(self, *, push: bool = True) -> None:
        self._before, self._cursor = [], ""
        self._go(push=push)

    def _back(self) -> None:
        self._cursor = self._before.pop() if self._before else ""
        self._go()

    def _forth(self) -> None:
        self._before.append(self._cursor)
        self._cursor = self._next
        self._go()

    def _go(self, *, push: bool = True) -> None:
        if self._on_select is not None:  # ticks of rows that are not shown would surprise
            if self._table is not None:
                self._table.selected = []
                self._table.update()
            self._on_select([])
        self._view.set_query(push=push, **{f"{self._prefix}cursor": self._cursor})
        self.reload()
