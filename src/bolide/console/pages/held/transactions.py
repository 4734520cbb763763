"""Transactions: open half messages, those set aside, and decisions about them."""

from collections.abc import Container
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields
from bolide.console.ui.contents import body_block, properties_table
from bolide.console.ui.cursor_tables import CursorTable, Part
from bolide.console.ui.dialogs import confirm_and_run
from bolide.console.ui.formats import ago, count, moment, size
from bolide.console.ui.layout import facts, page_header, section_title, tabs
from bolide.console.ui.panels import Panel, note
from bolide.console.ui.tables import Action, Column, Row, simple_table
from bolide.console.ui.view import View, attempt
from bolide.operations.declaration import Role
from bolide.operations.held.halves import TransactionState
from bolide.operations.held.transactions import (
    ResolutionPlan,
    Transaction,
    TransactionCounts,
    TransactionDetail,
    count_transactions,
    list_transactions,
    resolve_transaction,
    resume_check,
    show_transaction,
)

_FILTERS = ("broker", "group", "topic")


@page("/transactions", title="Transactions", section=Section.HELD, icon="swap_horiz", order=2)
def transactions_page(view: View) -> None:
    """Open transactions and those set aside."""
    t = view.t
    page_header(
        view,
        t("Transactions"),
        subtitle=t("Half messages whose producers have not said yet whether they commit."),
    )
    _counts_panel(view)
    names = {"open": t("Undecided"), "set_aside": t("Set aside")}

    def build(name: str) -> None:
        _List(view, set_aside=name == "set_aside")

    tabs(view, names, build)


def _counts_panel(view: View) -> None:
    t = view.t

    async def load() -> TransactionCounts:
        return await view.run(count_transactions)

    def render(found: TransactionCounts) -> None:
        columns = [
            Column(name="broker", label=t("Broker")),
            Column(name="open", label=t("Undecided"), kind="number"),
            Column(name="aside", label=t("Set aside"), kind="number"),
            Column(name="remark", label=t("Remark")),
        ]
        rows = []
        for each in found.brokers:
            remark = each.failure
            if not remark and each.lists is False:
                remark = t("RocketMQ tells only the number that its check has not settled.")
            rows.append({
                "key": each.broker,
                "broker": each.broker,
                "open": count(each.open),
                "aside": count(each.set_aside),
                "remark": remark,
            })  # fmt: skip
        simple_table(columns, rows, label=t("Transactions by broker"))

    Panel(
        view,
        load,
        render,
        every=5.0,
        is_empty=lambda found: not found.brokers,
        empty=t("No broker is registered."),
    )


class _List:
    """The table of open transactions, or of those set aside."""

    def __init__(self, view: View, *, set_aside: bool) -> None:
        self._view = view
        self._t = t = view.t
        self._set_aside = set_aside
        self._filters = {name: view.query.get(name, "") for name in _FILTERS}
        columns = [
            Column(name="began", label=t("Began")),
            Column(name="message", label=t("Half message"), kind="link"),
            Column(name="group", label=t("Producer group")),
            Column(name="topic", label=t("Topic"), kind="link"),
            Column(name="keys", label=t("Keys")),
            Column(name="checks", label=t("Asked"), kind="number"),
            Column(name="next", label=t("Asked next")),
            Column(name="producer", label=t("Producer")),
            Column(name="size", label=t("Size"), kind="number"),
        ]
        actions = []
        if view.may(Role.OPERATOR):
            actions = [
                Action(
                    name="commit",
                    label=t("Commit"),
                    icon="check",
                    handler=partial(self._resolve, commit=True),
                ),
                Action(
                    name="rollback",
                    label=t("Roll back"),
                    icon="close",
                    handler=partial(self._resolve, commit=False),
                ),
            ]
            if set_aside:
                actions.append(
                    Action(
                        name="resume",
                        label=t("Resume the check"),
                        icon="replay",
                        handler=self._resume,
                    )
                )
        hint = t("They were committed or rolled back in time.")
        self._table: CursorTable[Transaction] = CursorTable(
            view,
            columns,
            self._load,
            self._row,
            label=t("Transactions"),
            empty=t("No transaction was set aside.") if set_aside else t("No transaction is open."),
            empty_hint="" if set_aside else hint,
            actions=actions,
            toolbar=self._toolbar,
            every=3.0,
        )

    def _toolbar(self) -> None:
        t = self._t
        labels = {"broker": t("Broker"), "group": t("Producer group"), "topic": t("Topic")}
        for name, label in labels.items():
            field = fields.text(label, self._filters[name]).classes("filter-field", remove="full")
            field.props("clearable debounce=400")
            field.on_value_change(partial(self._filtered, name))

    def _filtered(self, name: str, event: Any) -> None:
        self._filters[name] = str(event.value or "").strip()
        self._view.set_query(push=False, **{name: self._filters[name]})
        self._table.first_page()

    async def _load(self, cursor: str, wanted: int) -> Part[Transaction]:
        found = await self._view.run(
            list_transactions,
            set_aside=self._set_aside,
            cursor=cursor,
            size=wanted,
            **self._filters,
        )
        summary = ""
        if found.not_listing:
            names = ", ".join(found.not_listing)
            summary = self._t("Not listed by {brokers}, which run RocketMQ.", brokers=names)
        return Part(items=found.items, next=found.next, summary=summary, failures=found.failures)

    def _row(self, each: Transaction) -> Row:
        view = self._view
        return {
            "key": f"{each.transaction_id or each.message_id} {each.broker}",
            "id": each.transaction_id or each.message_id,
            "broker": each.broker,
            "began": ago(view, each.began_ms),
            "began_hint": moment(view, each.began_ms),
            "message": each.transaction_id or each.message_id,
            "message_href": _path(each),
            "group": each.producer_group,
            "topic": each.topic,
            "topic_href": f"/topics/{quote(each.topic, safe='')}",
            "keys": " ".join(each.keys),
            "checks": count(each.checks),
            "next": ago(view, each.next_check_ms) if each.next_check_ms else self._t("not again"),
            "producer": each.producer,
            "size": size(each.size),
        }

    async def _resolve(self, row: Row, *, commit: bool) -> None:
        which = {"message_id": str(row["id"]), "broker": str(row["broker"])}
        await resolve(self._view, which, commit=commit, on_done=self._table.reload)

    async def _resume(self, row: Row) -> None:
        which = {"message_id": str(row["id"]), "broker": str(row["broker"])}
        await resume(self._view, which, self._table.reload)


def _path(each: Transaction) -> str:
    """The page of a transaction: by its id, which stays when its half message is written anew."""
    name = quote(each.transaction_id or each.message_id, safe="")
    return f"/transactions/{name}?{urlencode({'broker': each.broker})}"


async def resolve(view: View, which: dict[str, str], *, commit: bool, on_done: Any) -> None:
    """Ask whether to commit or roll back a transaction, and do it.

    `which` are the parameters that name it.
    """
    t = view.t
    await confirm_and_run(
        view,
        resolve_transaction,
        {**which, "commit": commit, "by": view.session.user},
        title=t("Commit this transaction?") if commit else t("Roll back this transaction?"),
        button=t("Commit") if commit else t("Roll back"),
        show_effect=lambda plan: _show_plan(view, plan, commit=commit),
        danger=not commit,
        done=t("The transaction is committed.") if commit else t("The transaction is rolled back."),
        on_done=lambda _: on_done(),
    )


async def resume(view: View, which: dict[str, str], on_done: Any) -> None:
    if await attempt(view, view.run(resume_check, **which)):
        view.tell(view.t("Its producers are asked again."))
        on_done()


def _show_plan(view: View, plan: ResolutionPlan, *, commit: bool) -> None:
    t = view.t
    detail = plan.transaction
    if commit:
        readers = "—" if plan.readers is None else ", ".join(plan.readers) or t("no group yet")
        text = t(
            "The message is delivered to topic {topic}, read by: {readers}. This cannot be undone.",
            topic=detail.topic,
            readers=readers,
        )
        note(text, kind="warning", icon="warning_amber")
    else:
        text = t("The message is discarded: no consumer gets it. This cannot be undone.")
        note(text, kind="danger", icon="warning_amber")
    if detail.state is TransactionState.ENDED:
        note(t("This transaction has ended already."), kind="warning", icon="warning_amber")
    _facts(view, detail)


def _facts(view: View, detail: TransactionDetail) -> None:
    t = view.t
    facts({
        t("State"): state_text(view, detail.state),
        t("Producer group"): detail.producer_group or "—",
        t("Topic"): detail.topic or "—",
        t("Sent"): f"{moment(view, detail.born_ms)} ({ago(view, detail.born_ms)})",
        t("Keys"): detail.latest.properties.get("KEYS", "—"),
        t("Asked"): count(detail.latest.checks),
    })  # fmt: skip


def state_text(view: View, state: TransactionState | None) -> str:
    t = view.t
    texts = {
        TransactionState.OPEN: t("Undecided"),
        TransactionState.SET_ASIDE: t("Set aside"),
        TransactionState.ENDED: t("Ended"),
    }
    return texts[state] if state is not None else "—"


@page("/transactions/{message_id}", title="Half message")
def transaction_page(view: View, message_id: str) -> None:
    """One half message."""
    t = view.t

    which = {"message_id": message_id, "broker": view.query.get("broker", "")}
    buttons: dict[str, ui.button] = {}

    def actions() -> None:
        buttons["commit"] = ui.button(t("Commit"), on_click=lambda: decide(commit=True)).props(
            "unelevated no-caps icon=check"
        )
        buttons["rollback"] = ui.button(
            t("Roll back"), on_click=lambda: decide(commit=False)
        ).props("outline no-caps icon=close color=negative")
        buttons["resume"] = ui.button(t("Resume the check"), on_click=again).props(
            "outline no-caps icon=replay"
        )
        offer(())

    def offer(able: Container[str]) -> None:
        for name, button in buttons.items():
            button.set_visibility(name in able)

    async def decide(*, commit: bool) -> None:
        await resolve(view, which, commit=commit, on_done=panel.reload)

    async def again() -> None:
        await resume(view, which, panel.reload)

    async def load() -> TransactionDetail:
        return await view.run(show_transaction, **which)

    def render(detail: TransactionDetail) -> None:
        offer(_POSSIBLE[detail.state])
        _facts(view, detail)
        section_title(t("Body"))
        body_block(view, detail.body, detail.body_format)
        section_title(t("Properties"))
        properties_table(view, detail.latest.properties, label=t("Properties"))

    page_header(
        view,
        t("Half message"),
        subtitle=message_id,
        crumbs=[(t("Transactions"), "/transactions")],
        actions=actions if view.may(Role.OPERATOR) else None,
    )
    panel = Panel(view, load, render, every=3.0)


_POSSIBLE = {
    TransactionState.OPEN: {"commit", "rollback"},
    TransactionState.SET_ASIDE: {"commit", "rollback", "resume"},
    TransactionState.ENDED: set[str](),
    None: {"resume"},  # RocketMQ lets administrators resume the check, and no more
}
"""What can be done about a transaction, by its state."""
