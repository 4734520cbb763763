"""The account of who is logged in, and the console's accounts for admins."""

from collections.abc import Awaitable, Callable

from nicegui import ui

from bolide.console.access.accounts import Account
from bolide.console.account_changes import AccountChanges
from bolide.console.pages.declaration import page
from bolide.console.ui import fields
from bolide.console.ui.dialogs import FormDialog
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import Panel
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.operations.declaration import Role


@page("/account", title="Account")
def account_page(view: View) -> None:
    """Who is logged in; an admin sees all accounts."""
    t = view.t
    session = view.session
    page_header(view, t("Account"))
    with ui.element("section").classes("panel"):
        kind = t("User of the cluster") if session.is_of_cluster else t("Account of the console")
        facts({t("Name"): session.user, t("Role"): t(session.role.label), t("Kind"): kind})
        if not session.is_of_cluster and view.console.settings.login:
            ui.button(t("Change password")).props("outline no-caps data-goto=/password")
    if view.may(Role.ADMIN) and not session.is_of_cluster:
        _Accounts(view)


class _Accounts:
    """The table of accounts and what can be done with them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._t = view.t
        self._changes = AccountChanges(view.console)
        section_title(view.t("Accounts of the console"))
        self._panel = Panel(view, self._load, self._render)

    async def _load(self) -> list[Account]:
        return self._changes.list(self._view.session)

    def _render(self, accounts: list[Account]) -> None:
        t = self._t
        columns = [
            Column(name="name", label=t("Name")),
            Column(name="role", label=t("Role"), kind="badge"),
            Column(name="password", label=t("Password")),
        ]
        rows = [
            {
                "key": each.name,
                "name": each.name,
                "role": t(each.role.label),
                "password": t("one-time password") if each.must_change else t("set"),
            }
            for each in accounts
        ]
        simple_table(columns, rows, label=t("Accounts of the console"))
        with ui.element("div").classes("button-row"):
            ui.button(t("New account"), icon="add", on_click=self._create).props(
                "unelevated no-caps"
            )
            ui.button(t("Change role"), on_click=self._set_role).props("outline no-caps")
            ui.button(t("Reset password"), on_click=self._reset).props("outline no-caps")
            ui.button(t("Delete"), on_click=self._delete).props("outline no-caps color=negative")

    def _create(self) -> None:
        t = self._t
        with FormDialog(self._view, t("New account"), t("Create")) as form:
            name = fields.text(t("Name"))
            role = self._role_field()

        async def act() -> None:
            password = await self._changes.create(
                self._view.session, name.value.strip(), role.value
            )
            show_password(self._view, name.value.strip(), password)

        self._run(form, act)

    def _set_role(self) -> None:
        form, chosen = self._ask(self._t("Change role"), self._t("Save"))
        with form:
            role = self._role_field()
        self._run(
            form, lambda: self._changes.set_role(self._view.session, chosen.value, role.value)
        )

    def _reset(self) -> None:
        form, chosen = self._ask(self._t("Reset password"), self._t("Reset"), danger=True)

        async def act() -> None:
            password = await self._changes.reset_password(self._view.session, chosen.value)
            show_password(self._view, chosen.value, password)

        self._run(form, act)

    def _delete(self) -> None:
        form, chosen = self._ask(self._t("Delete account"), self._t("Delete"), danger=True)
        self._run(form, lambda: self._changes.delete(self._view.session, chosen.value))

    def _ask(
        self, title: str, button: str, *, danger: bool = False
    ) -> tuple[FormDialog, ui.select]:
        form = FormDialog(self._view, title, button, danger=danger)
        with form:
            names = [each.name for each in self._changes.list(self._view.session)]
            chosen = fields.choice(self._t("Name"), names, self._view.session.user)
        return form, chosen

    def _role_field(self) -> ui.select:
        roles = {role: self._t(role.label) for role in Role}
        return fields.choice(self._t("Role"), roles, Role.VIEWER)

    def _run(self, form: FormDialog, action: Callable[[], Awaitable[object]]) -> None:
        async def submit() -> None:
            await action()
            self._panel.reload()

        form.on_submit(submit)
        form.open()


def show_password(view: View, name: str, password: str) -> None:
    """A one-time password, shown once."""
    t = view.t
    with FormDialog(view, t("One-time password of {name}", name=name), t("Copy")) as form:
        ui.label(t("It is shown only now, and replaced at the first log-in."))
        ui.label(password).classes("mono secret")

    async def copy() -> None:
        view.copy(password)

    form.on_submit(copy)
    form.open()
