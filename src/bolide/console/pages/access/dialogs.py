"""Dialogs that users and accounts share: what a change means, and a secret shown once."""

from collections.abc import Sequence

from nicegui import ui

from bolide.console.ui.dialogs import FormDialog
from bolide.console.ui.panels import failures_note, note
from bolide.console.ui.view import View
from bolide.operations.access.brokers import AppliedChange
from bolide.operations.access.users import AccessEffect
from bolide.operations.views import Failure


def show_secret(
    view: View, title: str, secret: str | None, failures: Sequence[Failure] = ()
) -> None:
    """A generated secret, which nobody can read again."""
    t = view.t
    with FormDialog(view, title, t("Copy"), stay=True) as form:
        failures_note(view, failures)
        if secret is not None:
            ui.label(t("It is shown only now: keep it in a safe place."))
            ui.label(secret).classes("mono secret")

    form.button.set_visibility(secret is not None)

    async def submit() -> None:
        view.copy(secret or "")

    form.on_submit(submit)
    form.open()


def tell_failures(view: View, result: AppliedChange) -> bool:
    """Show which brokers were not changed; tells whether there were any."""
    if result.failures:
        show_secret(view, view.t("Not all brokers were changed"), None, result.failures)
    return bool(result.failures)


def show_access_effect(view: View, effect: AccessEffect) -> None:
    """Who gains and loses what."""
    t = view.t
    for warning in effect.warnings:
        note(warning, kind="danger", icon="warning")
    for title, texts, mark in (
        (t("It loses"), effect.loses, "\N{MINUS SIGN}"),
        (t("It gains"), effect.gains, "+"),
    ):
        if texts:
            ui.label(title).classes("section-title")
            for text in texts:
                ui.label(f"{mark} {text}").classes("mono")
    if not (effect.loses or effect.gains or effect.warnings):
        ui.label(t("Nothing changes in what it may do."))
