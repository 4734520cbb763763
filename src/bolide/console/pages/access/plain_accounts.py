"""The part of the page about access control that is for ACL 1.0: accounts and white lists."""

from nicegui import ui

from bolide.auth.plain.accounts import PERMISSION_TEXTS
from bolide.console.pages.access.dialogs import (
    show_access_effect,
    show_secret,
    tell_failures,
)
from bolide.console.ui import fields
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import section_title
from bolide.console.ui.panels import Panel, failures_note
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations.access.brokers import AppliedChange
from bolide.operations.access.plain_accounts import (
    AccountView,
    PutAccount,
    WhiteLists,
    delete_account,
    get_white_lists,
    list_accounts,
    put_account,
    put_white_list,
)
from bolide.operations.access.users import AccessEffect
from bolide.operations.declaration import Role
from bolide.operations.views import Page

_PERMISSIONS = [each for each in PERMISSION_TEXTS if each != "SUB|PUB"]


def show_accounts(view: View) -> None:
    """Accounts and the global white list."""
    _Accounts(view)


class _Accounts:
    """The tables of ACL 1.0, and what can be done with them."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: dict[str, AccountView] = {}
        t = self._t = view.t
        actions = []
        if view.may(Role.ADMIN):
            actions = [
                Action(name="edit", label=t("Edit"), icon="edit", handler=self._edit),
                Action(name="delete", label=t("Delete"), icon="delete", handler=self._delete),
            ]
        self._table = DataTable(
            view,
            [
                Column(name="name", label=t("Access key")),
                Column(name="admin", label=t("Role"), kind="badge"),
                Column(name="topics", label=t("Topics")),
                Column(name="groups", label=t("Groups")),
                Column(name="rest", label=t("Other topics and groups")),
                Column(name="white", label=t("White list")),
                Column(name="same", label=t("Differs"), kind="badge"),
            ],
            self._load,
            self._row,
            label=t("Accounts (ACL 1.0)"),
            search=t("Access key, topic or group"),
            actions=actions,
            empty=t("There are no accounts."),
            toolbar=self._toolbar,
        )
        section_title(t("Global white list"))
        self._panel = Panel(view, self._load_lists, self._show_lists)

    def _toolbar(self) -> None:
        if self._view.may(Role.ADMIN):
            ui.button(
                self._t("Create account"), icon="person_add", on_click=lambda: self._ask(None)
            ).props("unelevated no-caps")

    async def _load(self, request: ListRequest) -> Page[AccountView]:
        found = await self._view.run(
            list_accounts, search=request.search, page=request.page, size=request.size
        )
        self._shown = {each.access_key: each for each in found.items}
        return found

    def _row(self, account: AccountView) -> Row:
        t = self._t
        missing, other = ", ".join(account.missing_at), ", ".join(account.differs_at)
        same = t("missing at {brokers}", brokers=missing) if missing else ""
        return {
            "key": account.access_key,
            "name": account.access_key,
            "admin": t("administrator") if account.admin else t("client"),
            "admin_tone": "info" if account.admin else "quiet",
            "topics": ", ".join(account.topics) or "—",
            "groups": ", ".join(account.groups) or "—",
            "rest": f"{account.default_topic}, {account.default_group}",
            "white": account.white_address or "—",
            "same": same or (t("other at {brokers}", brokers=other) if other else ""),
            "same_tone": "warning",
        }

    def _edit(self, row: Row) -> None:
        self._ask(self._shown.get(row["key"]))

    def _ask(self, known: AccountView | None) -> None:
        t = self._t
        title = t("Edit account {name}", name=known.access_key) if known else t("Create account")
        with FormDialog(self._view, title, t("Continue")) as form:
            key = fields.text(t("Access key"), known.access_key if known else "")
            key.set_enabled(known is None)
            admin = fields.switch(t("Administrator"), known.admin if known else False)
            topics = fields.text(
                t("Topics"),
                ", ".join(known.topics) if known else "",
                hint=t("Such as orders=PUB|SUB, separated by commas"),
            )
            groups = fields.text(t("Groups"), ", ".join(known.groups) if known else "")
            topic = fields.choice(
                t("Other topics"), _PERMISSIONS, _permission(known.default_topic if known else "")
            )
            group = fields.choice(
                t("Other groups"), _PERMISSIONS, _permission(known.default_group if known else "")
            )
            white = fields.text(t("White list"), known.white_address if known else "")
            renew = fields.switch(t("New secret key"), known is None)
            renew.set_enabled(known is not None)

        async def submit() -> None:
            arguments = {
                "access_key": key.value.strip(),
                "new_secret": bool(renew.value),
                "admin": bool(admin.value),
                "white_address": white.value.strip(),
                "default_topic": topic.value,
                "default_group": group.value,
                "topics": _items(topics.value),
                "groups": _items(groups.value),
            }
            await confirm_and_run(
                self._view,
                put_account,
                arguments,
                title=t("Save account {name}?", name=arguments["access_key"]),
                button=t("Save"),
                show_effect=self._show_effect,
                danger=False,
                on_done=self._done,
            )

        form.on_submit(submit)
        form.open()

    def _done(self, result: PutAccount) -> None:
        t = self._t
        self._table.reload()
        if result.secret_key is None and not result.failures:
            self._view.tell(t("Saved at {brokers}.", brokers=", ".join(result.brokers)))
            return
        show_secret(
            self._view,
            t("Secret key of {name}", name=result.access_key),
            result.secret_key,
            result.failures,
        )

    async def _delete(self, row: Row) -> None:
        t, key = self._t, row["key"]
        await confirm_and_run(
            self._view,
            delete_account,
            {"access_key": key},
            title=t("Delete account {name}?", name=key),
            button=t("Delete"),
            show_effect=self._show_effect,
            typed_name=key,
            done=t("The account was deleted."),
            on_done=self._deleted,
        )

    def _deleted(self, result: AppliedChange) -> None:
        tell_failures(self._view, result)
        self._table.reload()

    def _show_effect(self, effect: AccessEffect) -> None:
        show_access_effect(self._view, effect)

    # The white list

    async def _load_lists(self) -> WhiteLists:
        return await self._view.run(get_white_lists)

    def _show_lists(self, lists: WhiteLists) -> None:
        t = self._t
        failures_note(self._view, lists.failures)
        ui.label(t("From these addresses everything is allowed, without a signature."))
        rows: list[Row] = [
            {
                "key": each.broker,
                "broker": each.broker,
                "addresses": ", ".join(each.addresses) or "—",
            }
            for each in lists.brokers
        ]
        columns = [
            Column(name="broker", label=t("Broker")),
            Column(name="addresses", label=t("Addresses"), kind="code"),
        ]
        simple_table(columns, rows, label=t("Global white list"))
        if self._view.may(Role.ADMIN):
            with ui.element("div").classes("button-row"):
                ui.button(t("Edit"), icon="edit", on_click=lambda: self._ask_list(lists)).props(
                    "outline no-caps"
                )

    def _listed(self, result: AppliedChange) -> None:
        tell_failures(self._view, result)
        self._panel.reload()

    def _ask_list(self, lists: WhiteLists) -> None:
        t = self._t
        known = lists.brokers[0].addresses if lists.brokers else []
        with FormDialog(self._view, t("Global white list"), t("Continue")) as form:
            text = fields.text(
                t("Addresses"), ", ".join(known), hint=t("Such as 10.10.103.*, separated by commas")
            )

        async def submit() -> None:
            await confirm_and_run(
                self._view,
                put_white_list,
                {"addresses": _items(text.value)},
                title=t("Save the global white list?"),
                button=t("Save"),
                show_effect=self._show_effect,
                done=t("Saved."),
                on_done=self._listed,
            )

        form.on_submit(submit)
        form.open()


def _permission(text: str) -> str:
    return text if text in _PERMISSIONS else ("PUB|SUB" if text == "SUB|PUB" else "DENY")


def _items(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
