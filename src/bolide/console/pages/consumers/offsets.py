"""Reset the offsets of a consumer group, or take those of another one: look first, then apply."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from nicegui import ui

from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog, confirm_and_run
from bolide.console.ui.layout import section_title
from bolide.console.ui.panels import Panel, failures_note, note
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.consumers.listing import GroupDetail, describe_group
from bolide.operations.consumers.offsets import (
    OffsetPlan,
    QueueTarget,
    ResetTo,
    clone_offsets,
    reset_offsets,
)
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput

Queue = tuple[str, str, int]
"""Topic, name of the broker, and number."""
_MAX_ROWS = 500
_TIME = "%Y-%m-%dT%H:%M:%S"


def build_offsets(view: View, group: str, on_change: Callable[[], None]) -> None:
    """The tab with both; who may not change offsets is told so."""
    t = view.t
    if not view.may(Role.OPERATOR):
        note(t("Your role may look at offsets, but not move them."))
        return

    async def load() -> GroupDetail:
        return await view.run(describe_group, group=group)

    def render(detail: GroupDetail) -> None:
        _ResetForm(view, group, [each.topic for each in detail.topics], on_change)

    section_title(t("Reset"))
    Panel(view, load, render)  # loaded once: a new render would take away what was typed
    section_title(t("Take the offsets of another group"))
    with ui.element("section").classes("panel"):
        _CloneForm(view, group, on_change)


class _ResetForm:
    """Where to, and in which topic."""

    def __init__(
        self, view: View, group: str, topics: list[str], on_change: Callable[[], None]
    ) -> None:
        self._view = view
        self._group = group
        self._on_change = on_change
        t = view.t
        ui.label(
            t("The group need not have clients. Nothing is moved before you have seen the effect.")
        ).classes("small")
        with ui.element("div").classes("filters"):
            chosen = view.query.get("topic", topics[0] if topics else "")
            self._topic = fields.text(t("Topic"), chosen)
            self._topic.props["hint"] = t("Consumed, or another one")
            if topics:
                self._topic.set_autocomplete(topics)
            self._place = _Place(view)
        self._backwards = fields.switch(t("Only backwards: skip no message"))
        with ui.element("div").classes("button-row"):
            ui.button(t("Preview"), icon="preview", on_click=self._preview).props(
                "unelevated no-caps"
            )

    async def _preview(self) -> None:
        topic = str(self._topic.value).strip()
        try:
            arguments = self._place.arguments()
            if not topic:
                raise BadInput("topic", self._view.t("enter a name"))
        except BolideError as error:
            self._view.tell_error(error)
            return
        arguments |= {"group": self._group, "topic": topic}
        arguments["only_backwards"] = bool(self._backwards.value)
        await confirm_reset(self._view, arguments, self._on_change)


class _Place:
    """Inputs for earliest, latest, a time or an offset."""

    def __init__(self, view: View, *, with_offset: bool = False, offset: int | None = None) -> None:
        self._view = view
        t = view.t
        places = {
            ResetTo.TIME.value: t("A time"),
            ResetTo.EARLIEST.value: t("Earliest: the oldest message"),
            ResetTo.LATEST.value: t("Latest: skip everything"),
        }
        if with_offset:
            places[ResetTo.OFFSET.value] = t("An offset")
        first = ResetTo.OFFSET if with_offset else ResetTo.TIME
        self._to = fields.choice(t("Go on from"), places, first.value)
        now = datetime.now(view.time_zone).replace(microsecond=0)
        self._time = fields.text(t("Time"), now.strftime(_TIME))
        self._time.props("type=datetime-local step=1 stack-label")
        self._time.props["hint"] = str(view.time_zone)
        self._time.bind_visibility_from(self._to, "value", value=ResetTo.TIME.value)
        self._offset = fields.number(t("Offset"), offset, minimum=0)
        self._offset.bind_visibility_from(self._to, "value", value=ResetTo.OFFSET.value)

    @property
    def offset(self) -> int | None:
        """The offset, if that is chosen."""
        if self._to.value != ResetTo.OFFSET.value:
            return None
        if self._offset.value is None:
            raise BadInput("offset", self._view.t("enter a number"))
        return int(self._offset.value)

    def arguments(self) -> dict[str, Any]:
        """`to` and `time_ms`; raises BadInput."""
        to = ResetTo(self._to.value)
        time_ms = None
        if to is ResetTo.TIME:
            try:
                at = datetime.fromisoformat(str(self._time.value))
            except ValueError:
                raise BadInput("time_ms", self._view.t("enter a time")) from None
            zoned = at if at.tzinfo else at.replace(tzinfo=self._view.time_zone)
            time_ms = int(zoned.timestamp() * 1000)
        return {"to": to, "time_ms": time_ms}


class _CloneForm:
    """Whose offsets, and in which topic."""

    def __init__(self, view: View, group: str, on_change: Callable[[], None]) -> None:
        self._view = view
        self._group = group
        self._on_change = on_change
        t = view.t
        with ui.element("div").classes("filters"):
            self._source = fields.text(t("Source group"))
            self._topic = fields.text(t("Topic"), hint=t("Empty: all topics of the source"))
        with ui.element("div").classes("button-row"):
            ui.button(t("Preview the copy"), icon="preview", on_click=self._preview).props(
                "unelevated no-caps"
            )

    async def _preview(self) -> None:
        t, view = self._view.t, self._view
        source = str(self._source.value).strip()
        if not source:
            view.tell_error(t("Enter the source group."))
            return
        arguments = {
            "group": self._group,
            "source": source,
            "topic": str(self._topic.value).strip(),
        }
        await confirm_and_run(
            view,
            clone_offsets,
            arguments,
            title=t("Give {group} the offsets of {source}?", group=self._group, source=source),
            button=t("Apply"),
            show_effect=lambda plan: show_plan(view, plan),
            wide=True,
            on_done=lambda done: _tell(view, done, self._on_change),
        )


async def confirm_reset(view: View, arguments: dict[str, Any], on_done: Callable[[], None]) -> None:
    """Show what a reset does to each queue, and do it."""
    t = view.t
    await confirm_and_run(
        view,
        reset_offsets,
        arguments,
        title=t("Reset {group} in {topic}?", group=arguments["group"], topic=arguments["topic"]),
        button=t("Apply"),
        show_effect=lambda plan: show_plan(view, plan),
        wide=True,
        on_done=lambda done: _tell(view, done, on_done),
    )


def open_queue_reset(view: View, group: str, queue: Queue, on_done: Callable[[], None]) -> None:
    """Ask where to reset one queue to."""
    t = view.t
    topic, broker, number = queue
    with FormDialog(
        view, t("Reset queue {queue}", queue=f"{topic} · {broker}:{number}"), t("Preview")
    ) as form:
        place = _Place(view, with_offset=True)

    async def submit() -> None:
        arguments = place.arguments() | {"group": group, "topic": topic}
        target = QueueTarget(broker=broker, queue_id=number, offset=place.offset)
        await confirm_reset(view, arguments | {"queues": [target]}, on_done)

    form.on_submit(submit)
    form.open()


def show_plan(view: View, plan: OffsetPlan) -> None:
    """What happens to each queue, and to the clients."""
    t = view.t
    with ui.element("div").classes("plan-sums"):
        _sum(t("Delivered again"), formats.count(plan.redelivered))
        _sum(t("Skipped"), _skipped(view, plan.skipped, plan.skipped_at_most))
        _sum(t("Clients"), formats.count(plan.members))
    if plan.skipped_at_most:
        note(
            t("Skipped messages are never delivered to this group."),
            kind="danger",
            icon="warning_amber",
        )
    if plan.members != 0:
        if plan.members_follow:
            note(t("Running clients go on from the new offsets at once."))
        else:
            note(
                t("These brokers cannot move running clients in single queues: stop them first."),
                kind="warning",
                icon="warning_amber",
            )
    failures_note(view, plan.failures)
    columns = [
        Column(name="queue", label=t("Queue")),
        Column(name="range", label=t("Messages from to"), kind="number"),
        Column(name="before", label=t("Before"), kind="number"),
        Column(name="after", label=t("After"), kind="number"),
        Column(name="redelivered", label=t("Delivered again"), kind="number"),
        Column(name="skipped", label=t("Skipped"), kind="number"),
    ]
    rows = [
        {
            "key": f"{each.topic} {each.broker} {each.queue_id}",
            "queue": f"{each.topic} · {each.broker}:{each.queue_id}",
            "range": f"{each.min_offset:,} … {each.max_offset:,}",
            "before": formats.count(each.before),
            "after": formats.count(each.after),
            "redelivered": formats.count(each.redelivered),
            "skipped": _skipped(view, each.skipped, each.skipped_at_most),
        }
        for each in plan.moves[:_MAX_ROWS]
    ]
    if rows:
        simple_table(columns, rows, label=t("Queues"))
    else:
        note(t("No queue is moved."), kind="warning")
    if len(plan.moves) > _MAX_ROWS:
        ui.label(t("and {count} more", count=len(plan.moves) - _MAX_ROWS)).classes("small")


def _sum(name: str, value: str) -> None:
    with ui.element("div"):
        ui.label(name).classes("figure-name")
        ui.label(value).classes("figure-value")


def _skipped(view: View, known: int | None, at_most: int) -> str:
    if known is None:
        return view.t("up to {count}", count=f"{at_most:,}")
    return formats.count(known)


def _tell(view: View, done: OffsetPlan, on_done: Callable[[], None]) -> None:
    if done.failures:
        reasons = "; ".join(f"{each.server}: {each.reason}" for each in done.failures)
        view.tell_error(view.t("Not done everywhere: {reasons}", reasons=reasons))
    else:
        view.tell(view.t("Moved in {count} queues.", count=len(done.moves)))
    on_done()
