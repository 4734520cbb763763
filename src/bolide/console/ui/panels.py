"""Parts of a page that load by themselves, and tell loading, empty, failed and unknown apart."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from nicegui import background_tasks, ui

from bolide.console.service import SessionEnded
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.errors import NotSupported
from bolide.operations.views import Failure, reason_of
from bolide.protocol.refusals import RequestCodeNotSupported

T = TypeVar("T")

_NOTHING = object()
"""What no answer is equal to."""


class Panel(Generic[T]):
    """Shows what `load` returns, and loads it again every so often.

    `render` builds the elements anew for each answer. Where elements must stay (inputs, charts,
    what the user has opened), build them once outside and use `on_data` of `Poll`.
    """

    def __init__(
        self,
        view: View,
        load: Callable[[], Awaitable[T]],
        render: Callable[[T], None],
        *,
        every: float | None = None,
        is_empty: Callable[[T], bool] | None = None,
        empty: str = "",
    ) -> None:
        """Create the panel in the current place; it loads as soon as the page is shown.

        Args:
            view: the page.
            load: asks for the data.
            render: builds the elements for it, inside the panel.
            every: seconds between loads; None loads once, and on `reload`.
            is_empty: whether there is nothing to show.
            empty: what to say then.
        """
        self._view = view
        self._render = render
        self._is_empty = is_empty
        self._empty = empty
        self._shown: object = _NOTHING
        with ui.element("section").classes("panel") as self.element:
            loading()
        self._poll = Poll(view, load, self._show, on_error=self._show_error, every=every)

    def reload(self) -> None:
        """Load again now."""
        self._poll.now()

    def _show(self, data: T) -> None:
        if data == self._shown:
            return
        self._shown = data
        self.element.clear()
        with self.element:
            if self._is_empty is not None and self._is_empty(data):
                empty_state(self._empty or self._view.t("Nothing here yet."))
            else:
                self._render(data)

    def _show_error(self, error: BolideError) -> None:
        self._shown = _NOTHING
        self.element.clear()
        with self.element:
            error_state(self._view, error, self.reload)


class Poll(Generic[T]):
    """Loads something when the page is shown and every so often, one load at a time."""

    def __init__(
        self,
        view: View,
        load: Callable[[], Awaitable[T]],
        on_data: Callable[[T], None],
        *,
        on_error: Callable[[BolideError], None] | None = None,
        every: float | None = None,
    ) -> None:
        self._view = view
        self._load = load
        self._on_data = on_data
        self._on_error = on_error or view.tell_error
        self._is_loading = False
        self._again = False
        self._is_stopped = False
        self._place = ui.element("template")  # deleted with the part of the page it is in
        if every is None:
            ui.timer(0, self._tick, once=True)
        else:
            ui.timer(every, self._tick)

    def now(self) -> None:
        """Load now, or as soon as the present load has ended."""
        if self._is_loading:
            self._again = True
        else:
            background_tasks.create(self._tick(), name="load", context=self._place)

    def stop(self) -> None:
        self._is_stopped = True

    @property
    def _is_gone(self) -> bool:
        return self._is_stopped or self._place.is_deleted

    async def _tick(self) -> None:
        if self._is_loading or self._is_gone:
            return
        self._is_loading = True
        try:
            data = await self._load()
        except SessionEnded:
            self.stop()
            return
        except BolideError as error:
            if not self._is_gone:
                self._on_error(error)
            return
        finally:
            self._is_loading = False
        if not self._is_gone:
            self._on_data(data)
        if self._again:
            self._again = False
            await self._tick()


def loading() -> None:
    """What is shown until the first answer."""
    with (
        ui.element("div").classes("state state-loading").props('data-state="loading" role="status"')
    ):
        for width in ("40%", "100%", "85%"):
            ui.element("div").classes("skeleton").style(f"width: {width}")


def empty_state(text: str, *, hint: str = "") -> None:
    """There is nothing: not an error, and not unknown."""
    with ui.element("div").classes("state").props('data-state="empty"'):
        ui.icon("inbox").classes("state-icon").props("aria-hidden=true")
        ui.label(text).classes("state-title")
        if hint:
            ui.label(hint).classes("state-hint")


def error_state(view: View, error: BolideError, retry: Callable[[], None] | None = None) -> None:
    """Loading failed: the reason, and a way to try again.

    What the servers do not offer is no failure, and trying again does not help.
    """
    if isinstance(error, NotSupported | RequestCodeNotSupported):
        unsupported_state(view, error)
        return
    with ui.element("div").classes("state state-error").props('data-state="error" role="alert"'):
        ui.icon("error_outline").classes("state-icon").props("aria-hidden=true")
        ui.label(view.t("This could not be loaded.")).classes("state-title")
        ui.label(reason_of(error)).classes("state-hint mono")
        if retry is not None:
            ui.button(view.t("Try again"), on_click=retry).props("flat dense no-caps")


def unsupported_state(view: View, error: BolideError) -> None:
    """The servers of this cluster do not offer it."""
    with ui.element("div").classes("state").props('data-state="unsupported" role="status"'):
        ui.icon("info_outline").classes("state-icon").props("aria-hidden=true")
        ui.label(view.t("This cluster does not offer it.")).classes("state-title")
        ui.label(reason_of(error)).classes("state-hint")


def unknown_state(text: str) -> None:
    """Nobody knows: it is neither empty nor failed."""
    with ui.element("div").classes("state").props('data-state="unknown"'):
        ui.icon("help_outline").classes("state-icon").props("aria-hidden=true")
        ui.label(text).classes("state-title")


def failures_note(view: View, failures: Sequence[Failure]) -> None:
    """Some servers did not answer: what is shown is not all."""
    if not failures:
        return
    with ui.element("div").classes("note note-warning").props('data-state="partial" role="status"'):
        ui.icon("warning_amber").props("aria-hidden=true")
        with ui.element("div"):
            ui.label(view.t("Not everything is shown: some servers did not answer."))
            for failure in failures[:8]:
                ui.label(f"{failure.server}: {failure.reason}").classes("mono small")
            if len(failures) > 8:
                ui.label(view.t("and {count} more", count=len(failures) - 8)).classes("small")


def note(text: str, *, kind: str = "info", icon: str = "info_outline") -> None:
    """A remark; `kind` is info, warning, danger or good."""
    with ui.element("div").classes(f"note note-{kind}"):
        ui.icon(icon).props("aria-hidden=true")
        ui.label(text)
