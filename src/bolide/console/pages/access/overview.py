"""Users, policies and accounts of the cluster, and a tester of permissions."""

from collections.abc import Callable

from nicegui import ui

from bolide.console.pages.access.plain_accounts import show_accounts
from bolide.console.pages.access.users import ACTIONS, HOME, show_users
from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields
from bolide.console.ui.layout import page_header, section_title, tabs
from bolide.console.ui.panels import Poll, error_state, failures_note, loading, note
from bolide.console.ui.tables import Column, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.access.brokers import AccessKind, AccessOverview, access_overview
from bolide.operations.access.check import AccessDecision, NeedDecision, check_access

_KINDS = ["Topic", "Group", "Cluster"]


@page(HOME, title="Access control", section=Section.SECURITY, icon="lock", order=1)
def access_control_page(view: View) -> None:
    """What the brokers offer decides what is shown: users, accounts, or how to turn it on."""
    t = view.t
    page_header(
        view,
        t("Access control"),
        subtitle=t("Who may do what with topics and groups of the cluster"),
    )
    place = ui.element("div").classes("tab-panel")
    with place:
        loading()

    async def load() -> AccessOverview:
        return await view.run(access_overview)

    def fail(error: BolideError) -> None:
        place.clear()
        with place:
            error_state(view, error, poll.now)

    def show(overview: AccessOverview) -> None:
        place.clear()
        with place:
            failures_note(view, overview.failures)
            _show_overview(view, overview)

    poll = Poll(view, load, show, on_error=fail)


def _show_overview(view: View, overview: AccessOverview) -> None:
    t = view.t
    kinds = {each.kind for each in overview.brokers}
    if overview.brokers and kinds == {AccessKind.OFF}:
        _show_off(view, overview)
        return
    if len(kinds) > 1:
        note(
            t("The brokers control access in different ways: give them the same settings."),
            kind="warning",
            icon="warning_amber",
        )
    names: dict[str, str] = {}
    builders: dict[str, Callable[[], None]] = {}
    if AccessKind.USERS in kinds or None in kinds or not kinds:
        names["users"] = t("Users")
        builders["users"] = lambda: show_users(view)
    if AccessKind.ACCOUNTS in kinds:
        names["accounts"] = t("Accounts (ACL 1.0)")
        builders["accounts"] = lambda: show_accounts(view)
    names["tester"] = t("Permission tester")
    builders["tester"] = lambda: _Tester(view).build()
    names["brokers"] = t("Brokers")
    builders["brokers"] = lambda: _show_brokers(view, overview)
    tabs(view, names, lambda name: builders[name]())


def _show_off(view: View, overview: AccessOverview) -> None:
    t = view.t
    with ui.element("section").classes("panel"):
        with ui.element("div").classes("state").props('data-state="off"'):
            ui.icon("lock_open").classes("state-icon").props("aria-hidden=true")
            ui.label(t("Access control is off.")).classes("state-title")
            ui.label(
                t("Everybody who reaches the brokers may send, receive and administer.")
            ).classes("state-hint")
        section_title(t("Turn it on"))
        ui.label(t("Put this into the files of the NameServers and brokers, and restart them:"))
        ui.label(
            "authenticationEnabled=true\n"
            "authorizationEnabled=true\n"
            'initAuthenticationUser={"username":"root","password":"…"}\n'
            'innerClientAuthenticationCredentials={"accessKey":"root","secretKey":"…"}'
        ).classes("mono code-block")
        ui.label(t("Clients need an access key and a secret key from then on."))
    _show_brokers(view, overview)


def _show_brokers(view: View, overview: AccessOverview) -> None:
    t = view.t
    kinds = {
        AccessKind.OFF: t("open to everybody"),
        AccessKind.USERS: t("users and policies (ACL 2.0)"),
        AccessKind.ACCOUNTS: t("accounts (ACL 1.0)"),
        None: t("unknown"),
    }
    rows: list[Row] = [
        {
            "key": each.address,
            "broker": each.broker,
            "address": each.address,
            "kind": kinds[each.kind],
            "kind_tone": "warning" if each.kind is AccessKind.OFF else "quiet",
            "user": each.user or overview.identity or t("nobody: requests are not signed"),
            "power": each.power or "—",
        }
        for each in overview.brokers
    ]
    columns = [
        Column(name="broker", label=t("Broker")),
        Column(name="address", label=t("Address"), kind="code"),
        Column(name="kind", label=t("Access control"), kind="badge"),
        Column(name="user", label=t("This session is")),
        Column(name="power", label=t("What it may do")),
    ]
    with ui.element("section").classes("panel"):
        simple_table(columns, rows, label=t("Access control by broker"))


# ---- the tester


class _Tester:
    """A form whose question is in the URL, and its answer."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._t = view.t

    def build(self) -> None:
        t, query = self._t, self._view.query
        kind, _, name = query.get("resource", "").partition(":")
        with ui.element("section").classes("panel"):
            ui.label(
                t("May a user do something with a topic, group or cluster, and by which rule?")
            ).classes("page-subtitle")
            with ui.element("div").classes("filters filters-spaced"):
                self._user = fields.text(t("User or access key"), query.get("user", ""))
                self._action = fields.choice(
                    t("Action"), ACTIONS, _among(query.get("action", ""), ACTIONS)
                )
                self._kind = fields.choice(t("Resource type"), _KINDS, _among(kind, _KINDS))
                self._resource = fields.text(t("Resource name"), name)
                self._source = fields.text(t("Source address"), query.get("source", "127.0.0.1"))
            for field in (self._user, self._resource, self._source):
                field.on("keydown.enter", self._ask)
            with ui.element("div").classes("button-row"):
                self._button = ui.button(t("Test"), icon="rule", on_click=self._ask)
                self._button.props("unelevated no-caps")
        self._answer = ui.element("div").classes("tab-panel").props('role="status"')
        if query.get("user") and name:
            Poll(self._view, self._load, self._show, on_error=self._fail)

    async def _ask(self) -> None:
        self._button.props("loading")
        try:
            self._show(await self._load())
        except BolideError as error:
            self._fail(error)
        finally:
            if not self._button.is_deleted:
                self._button.props(remove="loading")

    async def _load(self) -> AccessDecision:
        question = {
            "user": self._user.value.strip(),
            "action": self._action.value,
            "resource": f"{self._kind.value}:{self._resource.value.strip()}",
            "source": self._source.value.strip(),
        }
        self._view.set_query(push=True, **question)
        return await self._view.run(
            check_access,
            username=question["user"],
            action=question["action"],
            resource=question["resource"],
            source=question["source"],
        )

    def _fail(self, error: BolideError) -> None:
        self._answer.clear()
        with self._answer:
            error_state(self._view, error)

    def _show(self, decision: AccessDecision) -> None:
        t = self._t
        self._answer.clear()
        question = t(
            "{user}: {action} on {resource} from {source}",
            user=decision.username,
            action=decision.action,
            resource=decision.resource,
            source=decision.source,
        )
        with self._answer:
            failures_note(self._view, decision.failures)
            if decision.allowed is None:
                verdict = t("The brokers decide differently, or none answered.")
                note(f"{question}. {verdict}", kind="warning", icon="help_outline")
            elif decision.allowed:
                note(f"{question}: {t('allowed')}", kind="good", icon="check_circle")
            else:
                note(f"{question}: {t('denied')}", kind="danger", icon="block")
            self._show_brokers(decision)

    def _show_brokers(self, decision: AccessDecision) -> None:
        t = self._t
        rows: list[Row] = []
        for broker in decision.brokers:
            where = t("evaluated here") if broker.evaluated_here else t("told by the broker")
            needs: list[NeedDecision | None] = [*broker.needs] or [None]
            for number, need in enumerate(needs):
                allowed = broker.allowed if need is None else need.allowed
                rule = "" if need is None else str(need.rule or t("no policy matches"))
                rows.append(
                    {
                        "key": f"{broker.broker} {number}",
                        "broker": broker.broker,
                        "verdict": t("allowed") if allowed else t("denied"),
                        "verdict_tone": "good" if allowed else "danger",
                        "needs": "—" if need is None else need.needs,
                        "rule": rule or broker.reason,
                        "where": where,
                    }
                )
        columns = [
            Column(name="broker", label=t("Broker")),
            Column(name="verdict", label=t("Verdict"), kind="badge"),
            Column(name="needs", label=t("What it needs"), kind="code"),
            Column(name="rule", label=t("By which rule"), kind="code"),
            Column(name="where", label=t("Decided")),
        ]
        with ui.element("section").classes("panel"):
            simple_table(columns, rows, label=t("Verdicts by broker"))
            if any(broker.evaluated_here for broker in decision.brokers):
                note(t("These brokers cannot be asked: their rules were read and applied here."))


def _among(text: str, known: list[str]) -> str:
    return text if text in known else known[0]
