"""Timers: messages that wait for their time, by broker, and how they are recalled."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields
from bolide.console.ui.cursor_tables import CursorTable, Part
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.formats import ago, count, moment, size
from bolide.console.ui.layout import page_header, section_title
from bolide.console.ui.panels import Poll, empty_state, error_state, loading, note
from bolide.console.ui.props import set_props
from bolide.console.ui.tables import Action, Column, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput
from bolide.operations.held.timers import (
    BrokerTimers,
    RecallPlan,
    Timer,
    TimerCounts,
    count_timers,
    list_timers,
    recall_timers,
)


@page("/timers", title="Timers", section=Section.HELD, icon="schedule", order=1)
def timers_page(view: View) -> None:
    """The pending timers of a broker."""
    _TimersPage(view)


class _TimersPage:
    def __init__(self, view: View) -> None:
        self._view = view
        self._t = t = view.t
        self._broker = view.query.get("broker", "")
        self._topic = view.query.get("topic", "")
        self._brokers: list[BrokerTimers] = []
        self._shown: BrokerTimers | None = None
        self._table: CursorTable[Timer] | None = None
        page_header(
            view,
            t("Timers"),
            subtitle=t("Messages that wait for their delivery time."),
            actions=self._actions if view.may(Role.OPERATOR) else None,
        )
        self._switch = ui.element("div").classes("figures").props("role=group")
        self._switch.props["aria-label"] = t("Brokers")
        self._levels = ui.element("div")
        self._levels_shown: str | None = None
        self._place = ui.element("div").classes("tab-panel")
        with self._place:
            loading()
        Poll(view, self._load, self._show, on_error=self._show_error, every=5.0)

    def _actions(self) -> None:
        ui.button(self._t("Recall by key"), on_click=self._ask_key).props(
            "outline no-caps icon=event_busy"
        )

    async def _load(self) -> TimerCounts:
        return await self._view.run(count_timers)

    def _show_error(self, error: BolideError) -> None:
        self._shown, self._brokers = None, []
        self._switch.clear()
        self._show_levels(None)
        self._place.clear()
        with self._place:
            error_state(self._view, error)

    def _show(self, counts: TimerCounts) -> None:
        if counts.brokers != self._brokers:
            self._brokers = counts.brokers
            self._show_switch()
        chosen = self._chosen()
        self._show_levels(chosen)
        if chosen is None:
            self._place.clear()
            with self._place:
                empty_state(self._t("No broker is registered."))
            self._shown = None
        elif self._is_other(chosen):
            self._shown = chosen
            self._show_broker(chosen)

    def _chosen(self) -> BrokerTimers | None:
        named = [each for each in self._brokers if each.broker == self._broker]
        return next(iter(named or self._brokers), None)

    def _is_other(self, chosen: BrokerTimers) -> bool:
        """Whether the part below has to be built anew; a list loads its rows itself."""
        shown = self._shown
        if shown is None or (shown.broker, shown.lists) != (chosen.broker, chosen.lists):
            return True
        return not chosen.lists and shown != chosen

    def _show_switch(self) -> None:
        t = self._t
        chosen = self._chosen()
        self._switch.clear()
        with self._switch:
            for each in self._brokers:
                is_chosen = chosen is not None and each.broker == chosen.broker
                card = ui.element("button").classes("figure-card broker-card").props("type=button")
                card.props("aria-pressed=true" if is_chosen else "aria-pressed=false")
                with card.on("click", lambda _, name=each.broker: self._choose(name)):
                    ui.label(each.broker).classes("figure-name")
                    state = "unknown" if each.timers is None else "known"
                    set_props(
                        ui.label(count(each.timers)).classes("figure-value"), data_state=state
                    )
                    hint = t("pending, recalled ones included until they are due")
                    if each.timers is None:
                        hint = t("unknown")
                    ui.label(hint).classes("figure-hint")

    def _show_levels(self, broker: BrokerTimers | None) -> None:
        """What waits besides timers; the list below does not have it."""
        text = "" if broker is None else self._levels_text(broker)
        if text == self._levels_shown:
            return
        self._levels_shown = text
        self._levels.clear()
        if text:
            with self._levels:
                note(text)

    def _levels_text(self, broker: BrokerTimers) -> str:
        t = self._t
        if broker.lists is None or broker.levels == []:  # it does not answer, as is said below
            return ""
        if broker.levels is None:
            return t("Unknown: how many messages wait at delay levels, among them retries.")
        levels = [
            t("{count} at level {level}", count=count(each.waiting), level=each.level)
            + (f" ({each.delay})" if each.delay else "")
            for each in broker.levels
        ]
        return t(
            "{count} more messages wait at delay levels, among them retries: {levels}",
            count=count(sum(each.waiting for each in broker.levels)),
            levels=", ".join(levels),
        )

    def _choose(self, broker: str) -> None:
        self._broker = broker
        self._shown = None
        self._view.set_query(broker=broker, cursor=None)
        self._show_switch()
        self._show(TimerCounts(brokers=self._brokers))

    def _show_broker(self, broker: BrokerTimers) -> None:
        t = self._t
        self._table = None
        self._place.clear()
        with self._place:
            if broker.lists:
                self._show_list(broker)
                return
            if broker.lists is None:
                note(broker.failure, kind="warning", icon="warning_amber")
                return
            note(
                t(
                    "This broker does not list its timers: only Bolide's brokers do. RocketMQ 5"
                    " tells how many each topic has."
                )
            )
            section_title(t("Pending timers by topic"))
            if broker.timers is None:
                note(broker.failure or t("The broker does not tell."), kind="warning")
            else:
                self._show_topics(broker)

    def _show_topics(self, broker: BrokerTimers) -> None:
        t = self._t
        if not broker.topics:
            empty_state(t("No timers are pending."))
            return
        columns = [
            Column(name="topic", label=t("Topic"), kind="link"),
            Column(name="timers", label=t("Timers"), kind="number"),
        ]
        rows = [
            {
                "key": each.topic,
                "topic": each.topic,
                "topic_href": f"/topics/{quote(each.topic, safe='')}",
                "timers": count(each.timers),
            }
            for each in broker.topics
        ]
        with ui.element("section").classes("panel"):
            simple_table(columns, rows, label=t("Pending timers by topic"))

    def _show_list(self, broker: BrokerTimers) -> None:
        t = self._t
        columns = [
            Column(name="due", label=t("Due")),
            Column(name="at", label=t("Time")),
            Column(name="topic", label=t("Topic"), kind="link"),
            Column(name="message", label=t("Message id"), kind="code"),
            Column(name="keys", label=t("Keys")),
            Column(name="tags", label=t("Tag")),
            Column(name="size", label=t("Size"), kind="number"),
        ]
        actions = []
        if self._view.may(Role.OPERATOR):
            actions.append(
                Action(
                    name="recall", label=t("Recall"), icon="event_busy", handler=self._recall_row
                )
            )
        self._table = CursorTable(
            self._view,
            columns,
            lambda cursor, wanted: self._load_timers(broker.broker, cursor, wanted),
            self._row,
            label=t("Pending timers"),
            empty=t("No timers are pending."),
            empty_hint=t("Messages sent with a delay or a delivery time wait here."),
            actions=actions,
            toolbar=self._toolbar,
            every=3.0,
        )

    def _toolbar(self) -> None:
        field = fields.text(self._t("Only this topic"), self._topic).classes(
            "search", remove="full"
        )
        field.props("clearable debounce=400")
        field.on_value_change(self._filtered)

    def _filtered(self, event: Any) -> None:
        self._topic = str(event.value or "").strip()
        self._view.set_query(topic=self._topic)
        if self._table is not None:
            self._table.first_page()

    async def _load_timers(self, broker: str, cursor: str, wanted: int) -> Part[Timer]:
        found = await self._view.run(
            list_timers, broker=broker, topic=self._topic, cursor=cursor, size=wanted
        )
        return Part(items=found.items, next=found.next)

    def _row(self, each: Timer) -> Row:
        view = self._view
        return {
            "key": f"{each.message_id} {each.due_ms}",
            "due": ago(view, each.due_ms),
            "at": moment(view, each.due_ms),
            "topic": each.topic,
            "topic_href": f"/topics/{quote(each.topic, safe='')}",
            "message": each.message_id,
            "keys": " ".join(each.keys),
            "tags": each.tags or "",
            "size": size(each.size),
        }

    async def _recall_row(self, row: Row) -> None:
        await self._recall(str(row["topic"]), str(row["message"]))

    async def _recall(self, topic: str, key: str) -> None:
        t = self._t
        chosen = self._chosen()
        if chosen is None:
            return
        await confirm_and_run(
            self._view,
            recall_timers,
            {"broker": chosen.broker, "topic": topic, "key": key},
            title=t("Recall timers of {topic}?", topic=topic),
            button=t("Recall"),
            show_effect=self._show_plan,
            done=t("Recalled; the messages are not delivered."),
            on_done=self._reload,
        )

    def _reload(self, _: object = None) -> None:
        if self._table is not None:
            self._table.reload()

    def _show_plan(self, plan: RecallPlan) -> None:
        view, t = self._view, self._t
        text = t("{count} messages will never be delivered:", count=count(len(plan.items)))
        note(text, kind="danger", icon="warning_amber")
        if not plan.is_complete:
            note(t("There are too many timers to look at all of them: more may have the key."))
        columns = [
            Column(name="at", label=t("Time")),
            Column(name="message", label=t("Message id"), kind="code"),
            Column(name="keys", label=t("Keys")),
        ]
        rows = [
            {
                "key": f"{each.message_id} {each.due_ms}",
                "at": moment(view, each.due_ms),
                "message": each.message_id,
                "keys": " ".join(each.keys),
            }
            for each in plan.items[:20]
        ]
        simple_table(columns, rows, label=t("Timers to recall"))

    def _ask_key(self) -> None:
        t = self._t
        with FormDialog(self._view, t("Recall by key"), t("Continue")) as form:
            topic = fields.text(t("Topic"), self._topic)
            key = fields.text(t("Key or unique id"))

        async def submit() -> None:
            if not (topic.value or "").strip() or not (key.value or "").strip():
                raise BadInput("key", t("give a topic, and a key or an id"))
            form.close()
            await self._recall(topic.value.strip(), key.value.strip())

        form.on_submit(submit)
        form.open()
