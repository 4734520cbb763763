"""The page about one consumer group."""

from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.consumers.clients import build_clients
from bolide.console.pages.consumers.forms import confirm_deletion, open_pause
from bolide.console.pages.consumers.offsets import build_offsets
from bolide.console.pages.consumers.queues import build_queues
from bolide.console.pages.consumers.settings import build_settings
from bolide.console.pages.consumers.texts import kind_text, warning_note, warning_tone
from bolide.console.pages.declaration import page
from bolide.console.ui import formats
from bolide.console.ui.charts import Line, TimeChart, joined
from bolide.console.ui.layout import Figure, page_header, section_title, tabs
from bolide.console.ui.panels import Poll, error_state, failures_note, note
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.consumers.listing import GroupDetail, GroupTopic, describe_group, show_trend
from bolide.operations.consumers.settings import set_topic_access
from bolide.operations.declaration import Role
from bolide.operations.history import Measure, Range, Series
from bolide.operations.views import Page, page_of

EVERY = 5.0
_TREND_EVERY = 15.0


@page("/consumers/{group}", title="Consumers")
def consumer_page(view: View, group: str) -> None:
    """One group: lag, queues, clients, offsets, settings."""
    _Consumer(view, group)


class _Consumer:
    def __init__(self, view: View, group: str) -> None:
        self._view = view
        self._group = group
        self._t = t = view.t
        self._is_paused = False
        self._pause: ui.button | None = None
        self._detail: GroupDetail | None = None
        page_header(view, group, crumbs=[(t("Consumers"), "/consumers")], actions=self._buttons)
        self._notes = ui.element("div").classes("group-notes")
        with ui.element("div").classes("figures"):
            self._lag = Figure(t("Backlog"))
            self._delay = Figure(t("Time lag"))
            self._rate = Figure(t("Messages/s"))
            self._clients = Figure(t("Clients"))
            self._retrying = Figure(t("To retry"))
            self._dead = Figure(t("Dead letters"), link=f"/dead-letters/{quote(group, safe='')}")
        self._poll = Poll(view, self._load, self._show, on_error=self._show_error, every=EVERY)
        names = {
            "overview": t("Overview"),
            "queues": t("Queues"),
            "clients": t("Clients"),
            "offsets": t("Reset offsets"),
            "settings": t("Settings"),
        }
        tabs(view, names, self._build)

    def _buttons(self) -> None:
        if not self._view.may(Role.OPERATOR):
            return
        t = self._t
        pause = ui.button(t("Pause"), icon="pause", on_click=self._pause_or_resume)
        pause.props("outline no-caps").set_enabled(False)
        self._pause = pause
        ui.button(t("Delete"), icon="delete_outline", on_click=self._delete).props(
            "outline no-caps color=negative"
        )

    def _build(self, tab: str) -> None:
        view, group = self._view, self._group
        match tab:
            case "queues":
                build_queues(view, group, self._poll.now)
            case "clients":
                build_clients(view, group)
            case "offsets":
                build_offsets(view, group, self._poll.now)
            case "settings":
                build_settings(view, group, self._poll.now)
            case _:
                self._build_overview()

    async def _load(self) -> GroupDetail:
        return await self._view.run(describe_group, group=self._group)

    def _show(self, detail: GroupDetail) -> None:
        t, row = self._t, detail.row
        if self._pause is not None:
            self._is_paused = any(each.kind in {"paused", "partly_paused"} for each in row.warnings)
            self._pause.text = t("Resume") if self._is_paused else t("Pause")
            self._pause.props("icon=play_arrow" if self._is_paused else "icon=pause")
            self._pause.set_enabled(row.is_paused is not None)
        self._lag.set(formats.count(row.lag), hint=self._why_unknown(detail))
        self._delay.set(
            formats.duration(self._view, row.delay_seconds),
            hint=t("age of the oldest waiting message") if row.delay_seconds else "",
        )
        self._rate.set(formats.rate(row.tps))
        self._clients.set(
            formats.count(row.clients), hint=kind_text(self._view, row) if row.clients else ""
        )
        self._retrying.set(formats.count(row.retrying))
        self._dead.set(formats.count(row.dead_letters), tone="danger" if row.dead_letters else "")
        if self._detail is not None and (
            self._detail.row.warnings == row.warnings and self._detail.failures == detail.failures
        ):
            return
        self._detail = detail
        self._notes.clear()
        with self._notes:
            for warning in row.warnings:
                kind = warning_tone(warning)
                note(warning_note(self._view, warning), kind=kind, icon="warning_amber")
            failures_note(self._view, detail.failures)

    def _why_unknown(self, detail: GroupDetail) -> str:
        if detail.row.lag is not None:
            return ""
        if detail.row.model == "broadcasting":
            return self._t("its clients keep the offsets")
        return "" if detail.failures else self._t("nothing consumed yet")

    def _show_error(self, error: BolideError) -> None:
        self._detail = None
        figures = (
            self._lag, self._delay, self._rate, self._clients, self._retrying, self._dead,
        )  # fmt: skip
        for figure in figures:  # what was true before is not now
            figure.set(formats.UNKNOWN)
        if self._pause is not None:
            self._pause.set_enabled(False)
        self._notes.clear()
        with self._notes:
            error_state(self._view, error, self._poll.now)

    def _build_overview(self) -> None:
        t = self._t
        _Trend(self._view, self._group)
        section_title(t("Topics"))
        actions = [
            Action(
                name="access",
                label=t("Forbid or allow"),
                icon="block",
                handler=self._change_access,
            )
        ]
        self._topics = DataTable(
            self._view,
            [
                Column(name="topic", label=t("Topic"), kind="link"),
                Column(name="lag", label=t("Backlog"), kind="number"),
                Column(name="queues", label=t("Queues"), kind="number"),
                Column(name="access", label=t("Reading"), kind="badge"),
            ],
            self._load_topics,
            self._topic_row,
            label=t("Topics"),
            actions=actions if self._view.may(Role.OPERATOR) else (),
            every=EVERY,
            empty=t("It has consumed no topic yet."),
        )

    async def _load_topics(self, request: ListRequest) -> Page[GroupTopic]:
        detail = await self._load()
        return page_of(detail.topics, page=request.page, size=request.size)

    def _topic_row(self, topic: GroupTopic) -> Row:
        t = self._t
        is_forbidden = bool(topic.forbidden_at)
        return {
            "key": topic.topic,
            "topic": topic.topic,
            "topic_href": f"/topics/{quote(topic.topic, safe='')}",
            "lag": formats.count(topic.lag),
            "queues": formats.count(topic.queues),
            "access": t("forbidden") if is_forbidden else t("allowed"),
            "access_tone": "warning" if is_forbidden else "quiet",
            "access_hint": ", ".join(topic.forbidden_at),
            "is_forbidden": is_forbidden,
        }

    async def _change_access(self, row: Row) -> None:
        t, view = self._t, self._view
        topic, allow = row["topic"], bool(row["is_forbidden"])
        try:
            done = await view.run(set_topic_access, group=self._group, topic=topic, readable=allow)
        except BolideError as error:
            view.tell_error(error)
            return
        if done.failures:
            view.tell_error("; ".join(f"{each.server}: {each.reason}" for each in done.failures))
        elif allow:
            view.tell(t("The group may read {topic} again.", topic=topic))
        else:
            view.tell(t("The group may not read {topic} any more.", topic=topic))
        self._topics.reload()
        self._poll.now()

    def _pause_or_resume(self) -> None:
        open_pause(self._view, self._group, self._is_paused, self._poll.now)

    async def _delete(self) -> None:
        await confirm_deletion(self._view, self._group, lambda: self._view.open("/consumers"))


class _Trend:
    """Lag, and rate of consumption, over time."""

    def __init__(self, view: View, group: str) -> None:
        self._view = view
        self._group = group
        t = view.t
        ranges = {
            Range.QUARTER.value: t("15 min"),
            Range.HOUR.value: t("1 hour"),
            Range.SIX_HOURS.value: t("6 hours"),
            Range.DAY.value: t("24 hours"),
            Range.WEEK.value: t("7 days"),
        }
        chosen = view.query.get("over", Range.HOUR.value)
        self._over = Range(chosen) if chosen in ranges else Range.HOUR
        with ui.element("section").classes("panel"):
            with ui.element("div").classes("chart-head"):
                section_title(t("Trend"))
                choice = ui.toggle(ranges, value=self._over.value, on_change=self._choose)
                choice.props("no-caps dense flat")
                choice.props["aria-label"] = t("Period")
            self._empty = ui.label(t("No samples yet: the console takes them while it runs."))
            self._empty.classes("small")
            with ui.element("div").classes("trend-charts") as self._charts:
                with ui.element("div"):
                    ui.label(t("Backlog in messages")).classes("figure-name")
                    self._lag = TimeChart(t("Backlog in messages"), area=True, height=180)
                with ui.element("div"):
                    ui.label(t("Time lag in seconds")).classes("figure-name")
                    self._delay = TimeChart(t("Time lag in seconds"), height=180)
                with ui.element("div"):
                    ui.label(t("Messages consumed per second")).classes("figure-name")
                    self._rate = TimeChart(t("Messages consumed per second"), height=180)
            self._charts.set_visibility(False)
            self._poll = Poll(view, self._load, self._show, every=_TREND_EVERY)

    async def _load(self) -> list[Series]:
        return await self._view.run(show_trend, group=self._group, over=self._over)

    def _show(self, series: list[Series]) -> None:
        has_points = any(point.value is not None for each in series for point in each.points)
        self._charts.set_visibility(has_points)
        self._empty.set_visibility(not has_points)
        charts = {
            Measure.GROUP_LAG: (self._lag, self._view.t("Backlog")),
            Measure.GROUP_DELAY: (self._delay, self._view.t("Time lag")),
            Measure.GROUP_RATE_OUT: (self._rate, self._view.t("Messages/s")),
        }
        for each in series:
            chart, name = charts[each.measure]
            points = [(point.time_ms, point.value) for point in each.points]
            chart.show([Line(name=name, points=joined(points))])

    def _choose(self, event: object) -> None:
        self._over = Range(str(getattr(event, "value", Range.HOUR.value)))
        self._view.set_query(over=None if self._over is Range.HOUR else self._over.value)
        self._poll.now()
