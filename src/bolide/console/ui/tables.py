"""Tables whose rows come page by page from the server."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from nicegui import events, ui

from bolide.console.ui.panels import (
    Poll,
    empty_state,
    error_state,
    failures_note,
    loading,
    unknown_state,
)
from bolide.console.ui.props import name_element
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.views import Page

T = TypeVar("T")
Row = dict[str, Any]

SIZES = (25, 50, 100, 200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; a row has the text of its cell under `name`."""

    name: str
    label: str
    kind: Literal["text", "link", "number", "badge", "code", "trend"] = "text"
    """link: the row has `<name>_href`. badge: `<name>_tone` is good, warning, danger, info or
    quiet. trend: what `formats.trend` returns. All: `<name>_hint` is a tooltip."""
    sortable: bool = False
    """`sort` of the request is the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A button in each row; `handler` gets the row."""

    name: str
    label: str
    icon: str
    handler: Callable[[Row], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """Which rows a table wants."""

    search: str
    sort: str
    descending: bool
    page: int
    size: int


class DataTable(Generic[T]):
    """A table with search, sorting and paging, all of them on the server and in the URL."""

    def __init__(  # noqa: PLR0913  a constructor with keyword options
        self,
        view: View,
        columns: Sequence[Column],
        load: Callable[[ListRequest], Awaitable[Page[T]]],
        row: Callable[[T], Row],
        *,
        label: str,
        sort: str = "",
        descending: bool = False,
        search: str | None = None,
        actions: Sequence[Action] = (),
        every: float | None = None,
        empty: str = "",
        empty_hint: str = "",
        prefix: str = "",
        on_select: Callable[[list[Row]], None] | None = None,
        toolbar: Callable[[], None] | None = None,
    ) -> None:
        """Create the table in the current place.

        Args:
            view: the page.
            columns: from left to right.
            load: asks for a page of rows.
            row: the cells of an item; its `key` tells the rows apart.
            label: names the table for screen readers.
            sort: the column it is sorted by at first.
            descending: whether the largest come first.
            search: what the search field says; without it there is none.
            actions: buttons of each row.
            every: seconds between loads of the shown rows.
            empty: what to say if there are no rows at all.
            empty_hint: what to do about it.
            prefix: of the names in the URL, if a page has several tables.
            on_select: called with the rows that are ticked; without it there are no boxes.
            toolbar: builds more filters and buttons beside the search field.
        """
        self._view = view
        self._columns = columns
        self._load = load
        self._row = row
        self._label = label
        self._actions = {action.name: action for action in actions}
        self._empty = (empty or view.t("Nothing here yet."), empty_hint)
        self._prefix = prefix
        self._on_select = on_select
        query = view.query
        self._search = query.get(f"{prefix}search", "")
        self._sort = query.get(f"{prefix}sort", sort)
        self._descending = query.get(f"{prefix}order", "desc" if descending else "asc") == "desc"
        self._page = _number(query.get(f"{prefix}page"), 1)
        self._size = _number(query.get(f"{prefix}size"), 50)
        self._table: ui.table | None = None
        self._total = 0
        with name_element(ui.element("section").classes("data-table"), label):
            with ui.element("div").classes("toolbar"):
                if search is not None:
                    self._add_search(search)
                if toolbar is not None:
                    toolbar()
            self._notes = ui.element("div")
            self._body = ui.element("div").classes("table-body")
            with self._body:
                loading()
            self._footer = ui.element("div").classes("table-footer")
        self._poll = Poll(view, self._ask, self._show, on_error=self._show_error, every=every)

    def reload(self) -> None:
        """Load the shown rows again; filters have changed, or an item has."""
        self._poll.now()

    def first_page(self) -> None:
        """Load from the first row: the filters have changed."""
        self._turn(1, push=False)

    def _add_search(self, text: str) -> None:
        field = ui.input(placeholder=text, value=self._search, on_change=self._searched)
        field.props("dense outlined clearable debounce=300").classes("search")
        name_element(field, text)
        with field.add_slot("prepend"):
            ui.icon("search").props("aria-hidden=true")

    async def _ask(self) -> Page[T]:
        request = ListRequest(
            search=self._search,
            sort=self._sort,
            descending=self._descending,
            page=self._page,
            size=self._size,
        )
        return await self._load(request)

    def _show(self, page: Page[T]) -> None:
        self._page, self._total, self._size = page.page, page.total, page.size
        rows = [self._row(item) for item in page.items]
        self._notes.clear()
        with self._notes:
            failures_note(self._view, page.failures)
        if not rows and page.failures:
            self._show_unknown()
        elif not rows:
            self._show_empty()
        elif self._table is None:
            self._body.clear()
            with self._body:
                self._table = self._make_table(rows)
        elif self._table.rows != rows:
            self._table.update_rows(rows, clear_selection=False)
        self._show_footer()

    def _show_unknown(self) -> None:
        """Nobody told of a row, and somebody who may know of one did not answer."""
        self._table = None
        self._body.clear()
        with self._body:
            unknown_state(self._view.t("Unknown: the servers that answer know of nothing here."))

    def _show_empty(self) -> None:
        self._table = None
        self._body.clear()
        with self._body:
            if self._search:
                empty_state(self._view.t("Nothing matches “{search}”.", search=self._search))
            else:
                empty_state(self._empty[0], hint=self._empty[1])

    def _show_error(self, error: BolideError) -> None:
        self._table = None
        self._body.clear()
        self._footer.clear()
        with self._body:
            error_state(self._view, error, self.reload)

    def _make_table(self, rows: list[Row]) -> ui.table:
        columns = [
            _column(column, sortable=column.sortable)
            | {"select": self._view.t("Select"), "select_all": self._view.t("Select all")}
            for column in self._columns
        ]
        if self._actions:
            columns.append(_action_column(self._view.t("Actions"), self._actions.values()))
        table = ui.table(
            columns=columns,
            rows=rows,
            row_key="key",
            selection="multiple" if self._on_select else None,
            pagination={
                "sortBy": self._sort or None,
                "descending": self._descending,
                "page": 1,
                "rowsPerPage": 0,
                "rowsNumber": len(rows),
            },
            on_select=self._selected,
        )
        table.props("flat dense hide-pagination binary-state-sort")
        name_element(table, self._label)
        table.on("request", self._sorted)
        table.add_slot("header-cell", _HEADER)
        for column in self._columns:
            table.add_slot(f"body-cell-{column.name}", _cell(column))
        if self._on_select is not None:
            table.add_slot("header-selection", _SELECT_ALL)
            table.add_slot("body-selection", _SELECT)
        if self._actions:
            _add_actions(table, self._actions)
        return table

    def _selected(self, event: events.TableSelectionEventArguments) -> None:
        if self._on_select is not None:
            self._on_select(list(event.selection))

    def _searched(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self._search = (event.value or "").strip()
        self.first_page()

    def _sorted(self, event: events.GenericEventArguments) -> None:
        wanted = event.args["pagination"]
        self._sort = wanted.get("sortBy") or self._sort
        self._descending = bool(wanted.get("descending"))
        if self._table is not None:
            self._table.pagination = {
                **self._table.pagination,
                "sortBy": self._sort,
                "descending": self._descending,
            }
        self._turn(1)

    def _turn(self, page: int, *, push: bool = True) -> None:
        self._page = page
        self._remember(push=push)
        self.reload()

    def _resize(self, event: events.ValueChangeEventArguments[Any]) -> None:
        if event.value and event.value != self._size:
            self._size = int(event.value)
            self._turn(1)

    def _remember(self, *, push: bool) -> None:
        values: dict[str, object] = {
            "search": self._search,
            "sort": self._sort,
            "order": "desc" if self._descending else "asc",
            "page": self._page if self._page > 1 else None,
            "size": self._size if self._size != 50 else None,
        }
        named = {f"{self._prefix}{key}": value for key, value in values.items()}
        self._view.set_query(push=push, **named)

    def _show_footer(self) -> None:
        t = self._view.t
        last = max(-(-self._total // self._size), 1)
        first = (self._page - 1) * self._size + 1
        shown = (self._page, last, self._total, self._size)
        if getattr(self, "_footer_shown", None) == shown and self._footer.default_slot.children:
            return
        self._footer_shown = shown
        self._footer.clear()
        if not self._total:
            return
        with self._footer:
            ui.label(
                t(
                    "{first} to {last} of {total}",
                    first=f"{first:,}",
                    last=f"{min(first + self._size - 1, self._total):,}",
                    total=f"{self._total:,}",
                )
            ).props('role="status"')
            if self._total > SIZES[0]:
                sizes = sorted({*SIZES, self._size})
                select = ui.select(sizes, value=self._size, on_change=self._resize)
                name_element(select.props("dense borderless"), t("Rows per page"))
            if last > 1:
                self._add_turn("chevron_left", t("Previous page"), self._page - 1, last)
                ui.label(f"{self._page:,} / {last:,}")
                self._add_turn("chevron_right", t("Next page"), self._page + 1, last)

    def _add_turn(self, icon: str, label: str, page: int, last: int) -> None:
        button = ui.button(icon=icon, on_click=lambda: self._turn(page))
        name_element(button.props("flat round dense"), label)
        button.set_enabled(1 <= page <= last)


_HEADER = """
<q-th :props="props">
  <button v-if="props.col.sortable" type="button" class="sort-button">{{ props.col.label }}</button>
  <span v-else>{{ props.col.label }}</span>
</q-th>
"""
_HINT = '<q-tooltip v-if="props.row.{name}_hint">{{{{ props.row.{name}_hint }}}}</q-tooltip>'
_SELECT_ALL = """
<q-checkbox dense v-model="props.selected" :aria-label="props.cols[0].select_all"></q-checkbox>
"""
_SELECT = """
<q-checkbox dense :model-value="props.selected" :aria-label="props.cols[0].select + ' ' + props.key"
  @update:model-value="(value, event) =>
    Object.getOwnPropertyDescriptor(props, 'selected').set(value, event)"></q-checkbox>
"""
_ACTIONS = """
<q-td :props="props" class="row-actions">
  <q-btn v-for="each in props.col.buttons" :key="each.name" flat round dense size="sm"
    :icon="each.icon" :aria-label="each.label + ' ' + props.row.key"
    @click.stop="$parent.$emit('act', {name: each.name, row: props.row})">
    <q-tooltip>{{ each.label }}</q-tooltip>
  </q-btn>
</q-td>
"""
_CELLS = {
    "text": "<span>{{{{ props.value }}}}</span>",
    "number": '<span class="figure">{{{{ props.value }}}}</span>',
    "code": '<code class="cell-code">{{{{ props.value }}}}</code>',
    "link": '<a v-if="props.row.{name}_href" :href="props.row.{name}_href" class="cell-link">'
    "{{{{ props.value }}}}</a><span v-else>{{{{ props.value }}}}</span>",
    "trend": '<svg class="trend" viewBox="0 0 100 24" preserveAspectRatio="none"'
    ' aria-hidden="true">'
    '<path :d="props.value" /></svg>',
    "badge": '<span v-if="props.value" class="badge" :class="\'badge-\' + (props.row.{name}_tone'
    " || 'quiet')\">{{{{ props.value }}}}</span>",
}


def _cell(column: Column) -> str:
    """The Vue template of a cell; values are bound, so nothing in them is run."""
    if not column.name.isidentifier():
        raise ValueError(f"a column needs a name of the code, not {column.name!r}")
    inner = (_CELLS[column.kind] + _HINT).format(name=column.name)
    return f'<q-td :props="props">{inner}</q-td>'


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and 0 < int(text) < 10**6 else default


def _column(column: Column, *, sortable: bool) -> Row:
    """A column as Quasar has it; templates of cells reach it as `props.col`."""
    return {
        "name": column.name,
        "label": column.label,
        "field": column.name,
        "align": "right" if column.kind == "number" else "left",
        "sortable": sortable,
    }


def _action_column(label: str, actions: Iterable[Action]) -> Row:
    """The column of the buttons; their texts are values, no part of a template."""
    buttons = [{"name": each.name, "label": each.label, "icon": each.icon} for each in actions]
    return {
        "name": "actions",
        "label": label,
        "field": "key",
        "align": "right",
        "buttons": buttons,
    }


def _add_actions(table: ui.table, actions: Mapping[str, Action]) -> None:
    """Buttons at the end of each row."""

    async def act(event: events.GenericEventArguments) -> None:
        action = actions.get(str(event.args.get("name")))
        if action is None:
            return
        result = action.handler(event.args["row"])
        if isinstance(result, Awaitable):
            await result

    table.add_slot("body-cell-actions", _ACTIONS)
    table.on("act", act)


def simple_table(
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    label: str,
    actions: Sequence[Action] = (),
    actions_label: str = "",
) -> ui.table:
    """A small table without paging, inside a panel; rows as in `DataTable`, with a `key`."""
    shown = [_column(column, sortable=False) for column in columns]
    if actions:
        shown.append(_action_column(actions_label, actions))
    table = ui.table(
        columns=shown,
        rows=list(rows),
        row_key="key",
        pagination=0,
    )
    table.props("flat dense hide-pagination tabindex=0").classes("simple-table")
    name_element(table, label)
    for column in columns:
        table.add_slot(f"body-cell-{column.name}", _cell(column))
    if actions:
        _add_actions(table, {action.name: action for action in actions})
    return table
