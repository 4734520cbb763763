"""Users of ACL 2.0 and their policies: the list, and the page of one user."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from bolide.auth.policies.model import Action, Decision, PolicyType, UserStatus, UserType
from bolide.console.pages.access.dialogs import (
    show_access_effect,
    show_secret,
    tell_failures,
)
from bolide.console.pages.declaration import page
from bolide.console.ui import fields
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import Poll, error_state, loading, note
from bolide.console.ui.tables import Action as RowAction
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.access.brokers import AppliedChange
from bolide.operations.access.changes import (
    create_user,
    delete_policy,
    delete_user,
    put_policy,
    replace_password,
    update_user,
)
from bolide.operations.access.users import (
    MadeUser,
    PolicyView,
    UserSort,
    UserView,
    get_user,
    list_users,
)
from bolide.operations.declaration import Operation, Role
from bolide.operations.views import Page

HOME = "/access-control"
ACTIONS = [each.value for each in Action if each is not Action.ALL]
_POLICIES_SHOWN = 3


def show_users(view: View) -> None:
    t = view.t

    async def load(request: ListRequest) -> Page[UserView]:
        return await view.run(
            list_users,
            search=request.search,
            sort=UserSort(request.sort) if request.sort in {*UserSort} else UserSort.NAME,
            descending=request.descending,
            page=request.page,
            size=request.size,
        )

    def row(user: UserView) -> Row:
        shown = [str(each) for each in user.policies]
        more = len(shown) - _POLICIES_SHOWN
        text = "; ".join(shown[:_POLICIES_SHOWN])
        return {
            "key": user.username,
            "name": user.username,
            "name_href": user_path(user.username),
            "type": user.user_type,
            "type_tone": "info" if user.is_super else "quiet",
            "status": _status(view, user),
            "status_tone": "good" if user.is_enabled else "danger",
            "policies": _summary(view, user, text, more),
            "policies_hint": "\n".join(shown) or None,
            "same": _deviation(view, user),
            "same_tone": "warning",
        }

    def toolbar() -> None:
        if view.may(Role.ADMIN):
            ui.button(
                t("Create user"), icon="person_add", on_click=lambda: _ask_new_user(view, table)
            ).props("unelevated no-caps")

    table = DataTable(
        view,
        [
            Column(name="name", label=t("User"), kind="link", sortable=True),
            Column(name="type", label=t("Type"), kind="badge", sortable=True),
            Column(name="status", label=t("Status"), kind="badge", sortable=True),
            Column(name="policies", label=t("Policies"), sortable=True),
            Column(name="same", label=t("Differs"), kind="badge"),
        ],
        load,
        row,
        label=t("Users"),
        sort="name",
        search=t("User or resource"),
        empty=t("There are no users."),
        toolbar=toolbar,
    )


def _summary(view: View, user: UserView, text: str, more: int) -> str:
    if user.is_super:
        return view.t("everything")
    if not text:
        return view.t("no permission")
    return f"{text} {view.t('and {count} more', count=more)}" if more > 0 else text


def _status(view: View, user: UserView) -> str:
    return view.t("enabled") if user.is_enabled else view.t("disabled")


def _deviation(view: View, user: UserView) -> str:
    if user.missing_at:
        return view.t("missing at {brokers}", brokers=", ".join(user.missing_at))
    if user.differs_at:
        return view.t("other at {brokers}", brokers=", ".join(user.differs_at))
    return ""


def _ask_new_user(view: View, table: DataTable[UserView]) -> None:
    t = view.t
    with FormDialog(view, t("Create user"), t("Create")) as form:
        name = fields.text(t("User name"), check=lambda text: None if text.strip() else t("Needed"))
        kind = fields.choice(
            t("Type"),
            {UserType.NORMAL: t("Normal: may do what its policies allow"),
             UserType.SUPER: t("Super: may do everything")},
            UserType.NORMAL,
        )  # fmt: skip
        password = fields.text(
            t("Password"), password=True, hint=t("Left empty, one is generated.")
        )

    async def submit() -> None:
        made = await view.run(
            create_user, username=name.value.strip(), password=password.value, user_type=kind.value
        )
        table.reload()
        _tell_made(view, made)

    form.check(name)
    form.on_submit(submit)
    form.open()


def _tell_made(view: View, made: MadeUser) -> None:
    """The generated password, shown once, and the brokers that were not reached."""
    t = view.t
    if made.password is None and not made.failures:
        view.tell(t("Saved at {brokers}.", brokers=", ".join(made.brokers)))
        return
    show_secret(view, t("Password of {name}", name=made.username), made.password, made.failures)


def user_path(name: str) -> str:
    return f"{HOME}/users/{quote(name, safe='')}"


@page(f"{HOME}/users/{{username}}", title="User")
def user_page(view: View, username: str) -> None:
    """One user with its policies."""
    _User(view, username)


class _User:
    """The page of a user, and what can be done with it."""

    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name
        self._user: UserView | None = None
        t = self._t = view.t
        page_header(view, name, crumbs=[(t("Access control"), HOME)], actions=self._build_actions)
        self._place = ui.element("div").classes("tab-panel")
        with self._place:
            loading()
        self._poll = Poll(view, self._load, self._show, on_error=self._fail)

    def _build_actions(self) -> None:
        t = self._t
        test = f"{HOME}?tab=tester&user={quote(self._name, safe='')}"
        ui.button(t("Test permissions"), icon="rule", on_click=lambda: self._view.open(test)).props(
            "outline no-caps"
        )
        if not self._view.may(Role.ADMIN):
            return
        ui.button(t("New password"), icon="key", on_click=self._renew).props("outline no-caps")
        self._toggle = ui.button(t("Disable"), on_click=self._change_status).props(
            "outline no-caps"
        )
        ui.button(t("Delete"), icon="delete", on_click=self._delete).props(
            "outline no-caps color=negative"
        )

    async def _load(self) -> UserView:
        return await self._view.run(get_user, username=self._name)

    def _fail(self, error: BolideError) -> None:
        self._place.clear()
        with self._place:
            error_state(self._view, error, self._poll.now)

    def _show(self, user: UserView) -> None:
        t, view = self._t, self._view
        self._user = user
        if view.may(Role.ADMIN):
            self._toggle.text = t("Disable") if user.is_enabled else t("Enable")
        self._place.clear()
        with self._place:
            if deviation := _deviation(view, user):
                note(deviation, kind="warning", icon="warning_amber")
            with ui.element("section").classes("panel"):
                facts({t("Type"): user.user_type, t("Status"): _status(view, user)})
            if user.is_super:
                note(t("A super user may do everything; its policies are not looked at."))
            with ui.element("div").classes("toolbar toolbar-plain"):
                section_title(t("Policies"))
                if view.may(Role.ADMIN):
                    ui.button(t("Add policy"), icon="add", on_click=self._ask_policy).props(
                        "unelevated no-caps"
                    )
            self._show_policies(user)

    def _show_policies(self, user: UserView) -> None:
        t = self._t
        actions = []
        if self._view.may(Role.ADMIN):
            actions = [
                RowAction(name="edit", label=t("Edit"), icon="edit", handler=self._edit),
                RowAction(name="delete", label=t("Delete"), icon="delete", handler=self._drop),
            ]

        async def load(request: ListRequest) -> Page[PolicyView]:
            del request
            return Page(
                items=user.policies, total=len(user.policies), page=1, size=len(user.policies) or 1
            )

        DataTable(
            self._view,
            [
                Column(name="resource", label=t("Resource"), kind="code"),
                Column(name="allowed", label=t("Actions allowed or denied")),
                Column(name="decision", label=t("Decision"), kind="badge"),
                Column(name="sources", label=t("Source")),
                Column(name="kind", label=t("Kind")),
            ],
            load,
            lambda policy: {
                "key": f"{policy.kind} {policy.resource}",
                "resource": policy.resource,
                "allowed": ", ".join(policy.actions),
                "decision": policy.decision,
                "decision_tone": "good" if policy.decision == Decision.ALLOW.value else "danger",
                "sources": ", ".join(policy.sources) or t("any address"),
                "kind": policy.kind,
            },
            label=t("Policies"),
            actions=actions,
            empty=t("It has no policies."),
            empty_hint=t("A user without policies may do nothing, unless it is a super user."),
        )

    # Changes

    def _find(self, row: Row) -> PolicyView | None:
        policies = self._user.policies if self._user is not None else []
        return next((p for p in policies if f"{p.kind} {p.resource}" == row["key"]), None)

    def _edit(self, row: Row) -> None:
        policy = self._find(row)
        if policy is not None:
            self._ask_policy(policy)

    def _ask_policy(self, policy: PolicyView | object = None) -> None:
        t = self._t
        known = policy if isinstance(policy, PolicyView) else None
        title = t("Edit policy") if known else t("Add policy")
        with FormDialog(self._view, title, t("Continue")) as form:
            resource = fields.text(
                t("Resource"),
                known.resource if known else "Topic:",
                hint=t("Topic:orders, Topic:orders*, Group:*, Cluster:* or *"),
            )
            if known is not None:
                resource.set_enabled(False)
            actions = fields.choice(
                t("Actions allowed or denied"),
                [Action.ALL.value, *ACTIONS],
                known.actions if known else [],
                multiple=True,
            ).props("use-chips")
            decision = fields.choice(
                t("Decision"),
                {Decision.ALLOW.value: t("Allow"), Decision.DENY.value: t("Deny")},
                known.decision if known else Decision.ALLOW.value,
            )
            sources = fields.text(
                t("Source addresses"),
                ", ".join(known.sources) if known else "",
                hint=t("Such as 10.0.0.0/8, separated by commas; empty for any"),
            )

        async def submit() -> None:
            arguments = {
                "username": self._name,
                "resource": resource.value.strip(),
                "actions": list(actions.value or []),
                "decision": decision.value,
                "sources": [each.strip() for each in sources.value.split(",") if each.strip()],
                "kind": known.kind if known else PolicyType.CUSTOM.value,
            }
            await self._view.preview(put_policy, **arguments)  # mistakes are shown in this form
            await confirm_and_run(
                self._view,
                put_policy,
                arguments,
                title=t("Save this policy of {name}?", name=self._name),
                button=t("Save"),
                show_effect=lambda effect: show_access_effect(self._view, effect),
                danger=False,
                done=t("The policy was saved."),
                on_done=self._changed,
            )

        form.on_submit(submit)
        form.open()

    async def _drop(self, row: Row) -> None:
        policy = self._find(row)
        if policy is None:
            return
        await self._confirm(
            delete_policy,
            self._t("Delete the policy about {resource}?", resource=policy.resource),
            self._t("Delete"),
            resource=policy.resource,
            kind=policy.kind,
        )

    async def _renew(self) -> None:
        t = self._t
        await confirm_and_run(
            self._view,
            replace_password,
            {"username": self._name},
            title=t("Generate a new password for {name}?", name=self._name),
            button=t("Generate"),
            show_effect=lambda effect: show_access_effect(self._view, effect),
            on_done=lambda made: _tell_made(self._view, made),
        )

    async def _change_status(self) -> None:
        t, user = self._t, self._user
        if user is None:
            return
        if user.is_enabled:
            await self._confirm(
                update_user,
                t("Disable {name}?", name=self._name),
                t("Disable"),
                status=UserStatus.DISABLE,
            )
        else:
            await self._confirm(
                update_user,
                t("Enable {name}?", name=self._name),
                t("Enable"),
                status=UserStatus.ENABLE,
            )

    async def _delete(self) -> None:
        t = self._t
        await confirm_and_run(
            self._view,
            delete_user,
            {"username": self._name},
            title=t("Delete user {name}?", name=self._name),
            button=t("Delete"),
            show_effect=lambda effect: show_access_effect(self._view, effect),
            typed_name=self._name,
            done=t("The user was deleted."),
            on_done=self._deleted,
        )

    async def _confirm(
        self, operation: Operation[Any, Any], title: str, button: str, **more: object
    ) -> None:
        await confirm_and_run(
            self._view,
            operation,
            {"username": self._name, **more},
            title=title,
            button=button,
            show_effect=lambda effect: show_access_effect(self._view, effect),
            done=self._t("Saved."),
            on_done=self._changed,
        )

    def _changed(self, result: AppliedChange) -> None:
        tell_failures(self._view, result)
        self._poll.now()

    def _deleted(self, result: AppliedChange) -> None:
        if tell_failures(self._view, result):
            self._poll.now()
        else:
            self._view.open(HOME)
