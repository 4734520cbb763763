"""Dialogs: forms, and the confirmation of what destroys or moves something."""

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from bolide.console.service import SessionEnded
from bolide.console.ui.panels import loading
from bolide.console.ui.props import name_element
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.declaration import Operation
from bolide.operations.errors import ConfirmationNeeded
from bolide.operations.views import reason_of

_FIELDS = (ui.input, ui.number, ui.textarea, ui.select)


class FormDialog:
    """A dialog with fields; it stays open, with the reason, if what it does fails.

    with FormDialog(view, title, t("Create")) as form:
        name = fields.text(...)
    form.on_submit(submit)   # async; raises BolideError
    form.open()
    """

    def __init__(
        self,
        view: View,
        title: str,
        submit: str,
        *,
        danger: bool = False,
        wide: bool = False,
        stay: bool = False,
    ) -> None:
        """Create the dialog; with `stay`, it stays open after it has succeeded."""
        self._view = view
        self._stay = stay
        self._submit: Callable[[], Awaitable[object]] | None = None
        self._checks: list[Callable[[], bool]] = []
        with view.client, ui.dialog() as self.dialog:
            name_element(self.dialog, title)
            with ui.card().classes("dialog" + (" dialog-wide" if wide else "")):
                ui.label(title).classes("dialog-title").props("role=heading aria-level=2")
                self.body = ui.element("div").classes("dialog-body")
                self._error = ui.label().classes("form-error").props("role=alert")
                self._error.set_visibility(False)
                with ui.element("div").classes("dialog-buttons"):
                    leave = view.t("Close") if stay else view.t("Cancel")
                    ui.button(leave, on_click=self.close).props("flat no-caps")
                    self.button = ui.button(submit, on_click=self._run)
                    self.button.props("unelevated no-caps")
                    self.button.props("color=negative" if danger else "color=primary")
        self.dialog.on("hide", self.dialog.delete)

    def __enter__(self) -> "FormDialog":
        self.body.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.body.__exit__(*error)

    def on_submit(self, action: Callable[[], Awaitable[object]]) -> None:
        """What the button does; the dialog closes if it succeeds."""
        self._submit = action

    def check(self, *fields: Any) -> None:
        """Validate these inputs before submitting."""
        self._checks += [field.validate for field in fields]

    def open(self) -> None:
        """Show it, with the cursor in its first field."""
        for field in self.body.descendants():
            if isinstance(field, _FIELDS) and field.visible and field.enabled:
                field.props("autofocus")
                break
        self.dialog.open()

    def close(self) -> None:
        self.dialog.close()

    def show_error(self, text: str) -> None:
        self._error.text = text
        self._error.set_visibility(bool(text))

    async def _run(self) -> None:
        if not all([check() for check in self._checks]) or self._submit is None:  # noqa: C419  all
            return
        self.show_error("")
        self.button.props("loading")
        try:
            await self._submit()
        except SessionEnded:
            return
        except BolideError as error:
            self.show_error(reason_of(error))
        else:
            if not self._stay:
                self.close()
        finally:
            if not self.button.is_deleted:
                self.button.props(remove="loading")


async def confirm_and_run(  # noqa: PLR0913  what is asked, and what is shown
    view: View,
    operation: Operation[Any, Any],
    arguments: dict[str, Any],
    *,
    title: str,
    button: str,
    show_effect: Callable[[Any], None] | None = None,
    typed_name: str | None = None,
    danger: bool = True,
    wide: bool = False,
    done: str = "",
    on_done: Callable[[Any], Any] | None = None,
) -> None:
    """Show what an operation would do, and run it if the user agrees.

    Args:
        view: the page.
        operation: one with a preview, or without: then the title is the question.
        arguments: its parameters.
        title: such as "Delete topic orders?".
        button: the verb: "Delete".
        show_effect: builds the elements for what the preview returned.
        typed_name: what has to be typed first, for what cannot be undone.
        danger: whether it destroys something.
        wide: whether the effect is a table.
        done: what to say afterwards.
        on_done: called with the result.
    """
    token = ""
    with FormDialog(view, title, button, danger=danger, wide=wide) as form:
        effect_place = ui.element("div").classes("effect")
        with effect_place:
            loading()
        if typed_name is not None:
            label = view.t("Type {name} to confirm", name=typed_name)
            typed = ui.input(label=label).props("outlined dense autocomplete=off")
            typed.classes("full").on_value_change(
                lambda event: form.button.set_enabled(event.value == typed_name)
            )
    form.button.set_enabled(False)

    async def load_effect() -> None:
        nonlocal token
        try:
            effect, token = await view.preview(operation, **arguments)
        except BolideError as error:
            effect_place.clear()
            form.show_error(reason_of(error))
            return
        effect_place.clear()
        with effect_place:
            if show_effect is not None:
                show_effect(effect)
        form.button.set_enabled(typed_name is None or typed.value == typed_name)

    async def submit() -> None:
        try:
            result = await view.run_confirmed(token, operation, **arguments)
        except ConfirmationNeeded:
            await load_effect()
            raise EffectChanged(view) from None
        if done:
            view.tell(done)
        if on_done is not None:
            outcome = on_done(result)
            if isinstance(outcome, Awaitable):
                await outcome

    form.on_submit(submit)
    form.open()
    await load_effect()


class EffectChanged(BolideError):
    """The cluster has changed since the user saw the effect."""

    def __init__(self, view: View) -> None:
        super().__init__(view.t("The effect has changed meanwhile. Look again, and confirm anew."))
