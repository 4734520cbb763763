"""Forms about consumer groups: create, change, delete, pause."""

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import ui

from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import facts
from bolide.console.ui.panels import note
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.operations.consumers.deletion import GroupDeletionEffect, delete_group
from bolide.operations.consumers.options import GroupSettings, RetryDelays, RetryKind
from bolide.operations.consumers.settings import (
    GroupChanged,
    SettingChange,
    change_group,
    create_group,
    pause_group,
    resume_group,
)
from bolide.operations.errors import BadInput


class _SettingFields:
    """Inputs for the settings of a group; `values` has those that differ from `known`."""

    def __init__(self, view: View, known: GroupSettings | None) -> None:
        t = self._t = view.t
        self._known = known
        delays = known.retry_delays if known else RetryDelays()
        with ui.element("div").classes("filters"):
            self._retries = fields.number(
                t("Retries before it is a dead letter"),
                known.max_retries if known else 16,
                minimum=-1,
                hint=t("-1: no limit"),
            )
            self._queues = fields.number(
                t("Queues of the retry topic"),
                known.retry_queues if known else 1,
                minimum=1,
            )
            self._timeout = fields.number(
                t("Consume timeout in minutes"),
                known.consume_timeout_minutes if known else 15,
                minimum=1,
            )
        with ui.element("div").classes("filters"):
            kinds = {
                RetryKind.DEFAULT.value: t("Delays of the broker"),
                RetryKind.DELAYS.value: t("List of delays"),
                RetryKind.EXPONENTIAL.value: t("Growing delays"),
            }
            self._kind = fields.choice(t("Wait before a retry"), kinds, delays.kind.value)
            self._list = fields.text(
                t("Delays in milliseconds"),
                ", ".join(map(str, delays.delays_ms or [1000, 5000, 10000])),
            ).bind_visibility_from(self._kind, "value", value=RetryKind.DELAYS.value)
            self._steps = [
                fields.number(label, value, minimum=1).bind_visibility_from(
                    self._kind, "value", value=RetryKind.EXPONENTIAL.value
                )
                for label, value in (
                    (t("First delay in ms"), delays.initial_ms or 5000),
                    (t("Longest delay in ms"), delays.max_ms or 7_200_000),
                    (t("Multiplier"), delays.multiplier or 2),
                )
            ]
        with ui.element("div").classes("switches"):
            self._switches = {
                "can_consume": fields.switch(
                    t("May consume"), known.can_consume if known else True
                ),
                "is_ordered": fields.switch(
                    t("Deliver pops in the order of the queue"),
                    known.is_ordered if known else False,
                ),
                "can_broadcast": fields.switch(
                    t("May broadcast"), known.can_broadcast if known else True
                ),
                "can_start_at_min": fields.switch(
                    t("New members may start with the oldest message"),
                    known.can_start_at_min if known else True,
                ),
                "notifies_members": fields.switch(
                    t("Tell members at once when others come or go"),
                    known.notifies_members if known else True,
                ),
            }

    def values(self) -> dict[str, Any]:
        """The parameters of the operation; of a change only those that are new."""
        found: dict[str, Any] = {name: each.value for name, each in self._switches.items()}
        for name, number in (
            ("max_retries", self._retries),
            ("retry_queues", self._queues),
            ("consume_timeout_minutes", self._timeout),
        ):
            found[name] = self._whole(number)
        found["retry_delays"] = self._delays()
        if self._known is None:
            return found
        return {n: value for n, value in found.items() if value != getattr(self._known, n)}

    def _delays(self) -> RetryDelays:
        kind = RetryKind(self._kind.value)
        if kind is RetryKind.DELAYS:
            parts = str(self._list.value).replace(",", " ").split()
            if not parts or not all(part.isdecimal() for part in parts):
                raise BadInput(self._list.props["label"], self._t("use numbers and commas"))
            return RetryDelays(kind=kind, delays_ms=[int(part) for part in parts])
        if kind is RetryKind.EXPONENTIAL:
            first, longest, multiplier = map(self._whole, self._steps)
            return RetryDelays(kind=kind, initial_ms=first, max_ms=longest, multiplier=multiplier)
        return RetryDelays()

    def _whole(self, field: ui.number) -> int:
        if field.value is None:
            raise BadInput(str(field.props["label"]), self._t("enter a number"))
        return int(field.value)


def open_create_form(view: View, on_done: Callable[[str], None]) -> None:
    """Ask for the settings of a new group."""
    t = view.t
    with FormDialog(view, t("Create group"), t("Create"), wide=True) as form:
        name = fields.text(
            t("Name"), check=lambda text: None if text.strip() else t("enter a name")
        )
        settings = _SettingFields(view, None)
    form.check(name)

    async def submit() -> None:
        group = name.value.strip()
        done = await view.run(create_group, group=group, **settings.values())
        _tell(view, done, t("The group was created."), lambda: on_done(group))

    form.on_submit(submit)
    form.open()


def open_change_form(
    view: View, group: str, known: Sequence[GroupSettings], on_done: Callable[[], None]
) -> None:
    """Ask for other settings of a group, and show before and after."""
    t = view.t
    with FormDialog(
        view, t("Change group {group}", group=group), t("Review changes"), wide=True
    ) as form:
        if len(known) > 1:
            names = [each.broker for each in known]
            chosen = fields.choice(t("Brokers"), names, names, multiple=True)
            if len({_without_broker(each) for each in known}) > 1:
                note(
                    t(
                        "The brokers have different settings; shown are those of {broker}.",
                        broker=known[0].broker,
                    ),
                    kind="warning",
                )
        else:
            chosen = None
        settings = _SettingFields(view, known[0])

    async def submit() -> None:
        values = settings.values()
        if not values:
            raise BadInput(t("Settings"), t("nothing was changed"))
        brokers = list(chosen.value) if chosen is not None else None
        await confirm_and_run(
            view,
            change_group,
            {"group": group, "brokers": brokers, **values},
            title=t("Change group {group}", group=group),
            button=t("Change"),
            show_effect=lambda changes: show_changes(view, changes),
            danger=False,
            wide=True,
            on_done=lambda done: _tell(view, done, t("The group was changed."), on_done),
        )

    form.on_submit(submit)
    form.open()


def show_changes(view: View, changes: Sequence[SettingChange]) -> None:
    """Settings before and after."""
    t = view.t
    if not changes:
        note(t("All brokers have these values already."))
        return
    columns = [
        Column(name="broker", label=t("Broker")),
        Column(name="name", label=t("Setting")),
        Column(name="before", label=t("Before"), kind="code"),
        Column(name="after", label=t("After"), kind="code"),
    ]
    rows = [
        {
            "key": f"{each.broker} {each.name}",
            "broker": each.broker,
            "name": setting_name(view, each.name),
            "before": each.before,
            "after": each.after,
        }
        for each in changes
    ]
    simple_table(columns, rows, label=t("Changes"))


def setting_name(view: View, name: str) -> str:
    t = view.t
    names = {
        "can_consume": t("May consume"),
        "can_start_at_min": t("New members may start with the oldest message"),
        "can_broadcast": t("May broadcast"),
        "is_ordered": t("Deliver pops in the order of the queue"),
        "retry_queues": t("Queues of the retry topic"),
        "max_retries": t("Retries before it is a dead letter"),
        "retry_delays": t("Wait before a retry"),
        "consume_timeout_minutes": t("Consume timeout in minutes"),
        "notifies_members": t("Tell members at once when others come or go"),
        "broker_id": t("Broker id to read from"),
        "slow_broker_id": t("Broker id to read from when far behind"),
        "attributes": t("Attributes"),
    }
    return names.get(name, name)


async def confirm_deletion(view: View, group: str, on_done: Callable[[], None]) -> None:
    """Show what is lost with a group, and delete it if its name is typed."""
    t = view.t
    await confirm_and_run(
        view,
        delete_group,
        {"group": group},
        title=t("Delete group {group}?", group=group),
        button=t("Delete"),
        show_effect=lambda effect: _show_deletion(view, effect),
        typed_name=group,
        on_done=lambda done: _tell(view, done, t("The group was deleted."), on_done),
    )


def _show_deletion(view: View, effect: GroupDeletionEffect) -> None:
    t = view.t
    facts(
        {
            t("Brokers"): ", ".join(effect.brokers) or formats.UNKNOWN,
            t("Clients"): formats.count(effect.members),
            t("Messages to retry"): formats.count(effect.retry_messages),
            t("Dead letters"): formats.count(effect.dead_letters),
        }
    )
    if effect.members:
        note(t("Stop its clients first: they are connected."), kind="danger", icon="block")
    note(
        t("Its offsets are forgotten, and its messages to retry and dead letters are deleted."),
        kind="warning",
        icon="warning_amber",
    )
    if effect.topics:
        ui.label(t("Topics that are deleted: {topics}", topics=", ".join(effect.topics)))
    if effect.backlog:
        columns = [
            Column(name="topic", label=t("Topic")),
            Column(name="messages", label=t("Not consumed"), kind="number"),
        ]
        rows = [
            {"key": each.topic, "topic": each.topic, "messages": formats.count(each.messages)}
            for each in effect.backlog
        ]
        simple_table(columns, rows, label=t("Not consumed"))


def open_pause(view: View, group: str, is_paused: bool, on_done: Callable[[], None]) -> None:
    """Explain a pause, or its end, and do it."""
    t = view.t
    title = (
        t("Resume group {group}?", group=group)
        if is_paused
        else t("Pause group {group}?", group=group)
    )
    with FormDialog(view, title, t("Resume") if is_paused else t("Pause")) as form:
        if is_paused:
            note(t("The group goes on where it stopped."))
        else:
            note(
                t(
                    "The brokers refuse its pulls until it is resumed. Its clients stay connected"
                    " and log the refusals; messages and offsets are kept, and the lag grows."
                ),
                kind="warning",
                icon="pause_circle",
            )

    async def submit() -> None:
        done = await view.run(resume_group if is_paused else pause_group, group=group)
        text = t("The group was resumed.") if is_paused else t("The group was paused.")
        _tell(view, done, text, on_done)

    form.on_submit(submit)
    form.open()


def _tell(view: View, done: GroupChanged, text: str, on_done: Callable[[], None]) -> None:
    if done.failures:
        reasons = "; ".join(f"{each.server}: {each.reason}" for each in done.failures)
        view.tell_error(view.t("Not done everywhere: {reasons}", reasons=reasons))
    else:
        view.tell(text)
    on_done()


def _without_broker(settings: GroupSettings) -> str:
    return repr(settings).replace(settings.broker, "")
