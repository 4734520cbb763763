"""The first page: what goes through the cluster now, and how it went lately."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import formats
from bolide.console.ui.charts import Line, TimeChart
from bolide.console.ui.layout import Figure, page_header, section_title
from bolide.console.ui.panels import Panel, Poll, failures_note
from bolide.console.ui.tables import Column, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations import dashboard
from bolide.operations.dashboard import BrokerLoad, BusyTopic, LaggingGroup, Overview
from bolide.operations.history import Measure, Range, Series
from bolide.operations.views import Failure

_LIVE = 2.0
_LISTS = 4.0
_MOST_LINES = 8
"""Brokers with a line of their own; of more, the sum and the first ones are drawn."""
_FULL, _NEARLY_FULL = 0.85, 0.75
"""Parts of a disk at which RocketMQ begins to delete early, and a bit before."""
_AREAS = frozenset({Measure.BACKLOG, Measure.DEAD_LETTERS})
_WHOLE_NUMBERS = _AREAS | {Measure.CLIENTS}
_EVERY = {Range.QUARTER: 5.0, Range.HOUR: 10.0}
"""Seconds between two loads of the charts; a minute for longer ranges."""


@page("/", title="Dashboard", section=Section.OVERVIEW, icon="dashboard", order=1)
def dashboard_page(view: View) -> None:
    """Figures of now, charts, the busiest topics and the groups that lag most."""
    charts = _Charts(view)
    page_header(view, view.t("Dashboard"), actions=lambda: _range_buttons(view, charts))
    now = _Now(view, charts.use_brokers)
    charts.build()
    _lists(view)
    now.build_brokers()


def _range_buttons(view: View, charts: "_Charts") -> None:
    t = view.t
    labels = {
        Range.QUARTER: t("15 min"),
        Range.HOUR: t("1 hour"),
        Range.SIX_HOURS: t("6 hours"),
        Range.DAY: t("24 hours"),
        Range.WEEK: t("7 days"),
    }
    buttons: dict[Range, ui.element] = {}

    def choose(chosen: Range) -> None:
        for each, button in buttons.items():
            button.props["aria-pressed"] = "true" if each is chosen else "false"
            button.update()
        view.set_query(range=None if chosen is Range.HOUR else chosen.value)
        charts.set_range(chosen)

    with ui.element("div").classes("ranges").props("role=group") as group:
        group.props["aria-label"] = t("Range of the charts")
        for each, label in labels.items():
            with ui.element("button").classes("range").props("type=button") as button:
                ui.label(label)
            button.props["aria-pressed"] = "true" if each is charts.over else "false"
            button.on("click", lambda _, each=each: choose(each))
            buttons[each] = button


class _Now:
    """Figures and brokers, renewed every two seconds."""

    def __init__(self, view: View, on_brokers: Callable[[Sequence[BrokerLoad]], None]) -> None:
        self._view = view
        self._on_brokers = on_brokers
        self._failures: list[Failure] = []
        self._brokers: Panel[list[BrokerLoad]] | None = None
        self._loads: list[BrokerLoad] | None = None
        t = view.t
        self._notes = ui.element("div")
        with ui.element("div").classes("figures"):
            self._up = Figure(t("Brokers up"), link="/cluster")
            self._rate_in = Figure(t("In per second"))
            self._rate_out = Figure(t("Out per second"))
            self._backlog = Figure(t("Backlog"), link="/consumers?sort=lag&order=desc")
            self._dead = Figure(t("Dead letters"), link="/dead-letters")
            self._disk = Figure(t("Fullest disk"), link="/cluster")
            self._clients = Figure(t("Clients"), link="/producers")
        Poll(view, lambda: view.run(dashboard.overview), self._show, every=_LIVE)

    def build_brokers(self) -> None:
        """The table of brokers, in the current place."""
        section_title(self._view.t("Brokers"))
        self._table_place = ui.element("section").classes("panel")
        self._table: ui.table | None = None

    def _show(self, found: Overview) -> None:
        t = self._view.t
        if found.failures != self._failures:
            self._failures = found.failures
            self._notes.clear()
            with self._notes:
                failures_note(self._view, found.failures)
        known = len(found.brokers)
        self._up.set(
            f"{found.brokers_up} / {known}" if known else formats.UNKNOWN,
            tone="danger" if found.brokers_up < known else "",
            hint=t("{count} down", count=known - found.brokers_up)
            if found.brokers_up < known
            else "",
        )
        self._rate_in.set(formats.rate(found.rate_in))
        self._rate_out.set(formats.rate(found.rate_out))
        self._backlog.set(
            formats.short_count(found.backlog), hint=self._unknown(found.backlog_unknown)
        )
        self._dead.set(
            formats.short_count(found.dead_letters),
            hint=self._unknown(found.dead_letters_unknown),
            tone="warning" if found.dead_letters else "",
        )
        self._disk.set(
            formats.percent(found.disk), hint=found.disk_broker, tone=_disk_tone(found.disk)
        )
        self._clients.set(formats.short_count(found.clients), hint=self._counts(found))
        self._show_brokers(found.brokers)
        self._on_brokers(found.brokers)

    def _unknown(self, groups: int) -> str:
        return self._view.t("{count} groups unknown", count=groups) if groups else ""

    def _counts(self, found: Overview) -> str:
        if found.topics is None or found.groups is None:
            return ""
        return self._view.t(
            "{topics} topics, {groups} groups",
            topics=formats.count(found.topics),
            groups=formats.count(found.groups),
        )

    def _show_brokers(self, brokers: list[BrokerLoad]) -> None:
        rows = [_broker_row(self._view, each) for each in brokers]
        if self._table is None:
            self._table_place.clear()
            with self._table_place:
                self._table = _broker_table(self._view, rows)
        elif self._table.rows != rows:
            self._table.update_rows(rows)


def _broker_table(view: View, rows: list[Row]) -> ui.table:
    t = view.t
    columns = [
        Column(name="name", label=t("Broker"), kind="link"),
        Column(name="state", label=t("State"), kind="badge"),
        Column(name="role", label=t("Role")),
        Column(name="rate_in", label=t("In per second"), kind="number"),
        Column(name="rate_out", label=t("Out per second"), kind="number"),
        Column(name="disk", label=t("Disk"), kind="number"),
        Column(name="clients", label=t("Clients"), kind="number"),
        Column(name="address", label=t("Address"), kind="code"),
        Column(name="version", label=t("Version")),
    ]
    return simple_table(columns, rows, label=t("Brokers"))


def _broker_row(view: View, each: BrokerLoad) -> Row:
    t = view.t
    state, tone = {
        True: (t("up"), "good"),
        False: (t("down"), "danger"),
        None: (t("unknown"), "quiet"),
    }[each.is_up]
    return {
        "key": f"{each.series} {each.address}",
        "name": each.name,
        "name_href": "/cluster",
        "state": state,
        "state_tone": tone,
        "state_hint": each.reason,
        "role": t("master") if each.broker_id == 0 else t("slave"),
        "rate_in": formats.rate(each.rate_in),
        "rate_out": formats.rate(each.rate_out),
        "disk": formats.percent(each.disk),
        "clients": formats.count(each.clients),
        "address": each.address,
        "version": each.version or formats.UNKNOWN,
    }


def _disk_tone(share: float | None) -> str:
    if share is None or share < _NEARLY_FULL:
        return ""
    return "danger" if share >= _FULL else "warning"


@dataclass(slots=True)
class _Chart:
    """A chart with its figures."""

    measure: Measure
    factor: float
    """By which values are multiplied."""
    chart: TimeChart
    note: ui.label


class _Charts:
    """Series over the chosen range."""

    def __init__(self, view: View) -> None:
        self._view = view
        try:
            self.over = Range(view.query.get("range", Range.HOUR))
        except ValueError:
            self.over = Range.HOUR
        self._brokers: tuple[str, ...] = ()
        self._charts: list[_Chart] = []
        self._poll: Poll[list[list[Series]]] | None = None

    def build(self) -> None:
        """The charts, in the current place."""
        t = self._view.t
        with ui.element("div").classes("chart-grid"):
            self._add(t("Messages in per second"), Measure.RATE_IN)
            self._add(t("Messages out per second"), Measure.RATE_OUT)
            self._add(t("Backlog"), Measure.BACKLOG)
            self._add(t("Dead letters"), Measure.DEAD_LETTERS)
            self._add(t("Disk in use, %"), Measure.DISK, factor=100)
            self._add(t("Clients"), Measure.CLIENTS)
        self._place = ui.element("div")
        self._start()

    def set_range(self, over: Range) -> None:
        """Draw another range."""
        self.over = over
        self._start()

    def use_brokers(self, brokers: Sequence[BrokerLoad]) -> None:
        """Draw a line for each of these brokers."""
        names = tuple(dict.fromkeys(each.series for each in brokers))[:_MOST_LINES]
        if names != self._brokers:
            self._brokers = names
            if self._poll is not None:
                self._poll.now()

    def _add(self, title: str, measure: Measure, *, factor: float = 1) -> None:
        with ui.element("section").classes("panel chart-panel"):
            ui.label(title).classes("chart-title").props("role=heading aria-level=2")
            chart = TimeChart(
                title,
                area=measure in _AREAS,
                height=150,
                whole=measure in _WHOLE_NUMBERS,
                utc=self._view.time_zone.key == "UTC",
            )
            note = ui.label("").classes("chart-note").props("role=status")
        self._charts.append(_Chart(measure, factor, chart, note))

    def _start(self) -> None:
        self._place.clear()  # with the timer of the range before
        every = _EVERY.get(self.over, 60.0)
        with self._place:
            self._poll = Poll(self._view, self._load, self._show, every=every)

    async def _load(self) -> list[list[Series]]:
        return await asyncio.gather(*(self._series(each.measure) for each in self._charts))

    async def _series(self, measure: Measure) -> list[Series]:
        brokers = [*self._brokers]
        if measure is Measure.DISK and not brokers:
            return []
        if measure in {Measure.RATE_IN, Measure.RATE_OUT, Measure.CLIENTS}:
            names = ["", *brokers] if len(brokers) > 1 else [""]
        else:
            names = brokers if measure is Measure.DISK else [""]
        return await self._view.run(dashboard.series, measure=measure, names=names, over=self.over)

    def _show(self, found: list[list[Series]]) -> None:
        for each, series in zip(self._charts, found, strict=True):
            lines = [self._line(each, one) for one in series]
            drawn = [line for line in lines if any(v is not None for _, v in line.points)]
            each.chart.show(drawn or lines[:1])
            text = "" if drawn else self._view.t("Nothing was sampled in this time.")
            each.note.text = text
            each.note.props["data-state"] = "known" if drawn else "unknown"

    def _line(self, chart: _Chart, series: Series) -> Line:
        return Line(
            name=series.name or self._view.t("Cluster"),
            points=[
                (p.time_ms, None if p.value is None else round(p.value * chart.factor, 2))
                for p in series.points
            ],
        )


def _lists(view: View) -> None:
    """The busiest topics beside the groups that lag most."""
    t = view.t
    with ui.element("div").classes("columns"):
        with ui.element("div"):
            section_title(t("Busiest topics"))
            Panel(
                view,
                lambda: view.run(dashboard.busy_topics),
                lambda found: _topics(view, found),
                every=_LISTS,
                is_empty=lambda found: not found,
                empty=t("No topic is known to get messages now."),
            )
        with ui.element("div"):
            section_title(t("Groups with the largest backlog"))
            Panel(
                view,
                lambda: view.run(dashboard.lagging_groups),
                lambda found: _groups(view, found),
                every=_LISTS,
                is_empty=lambda found: not found,
                empty=t("No group is known to be behind."),
            )


def _topics(view: View, found: list[BusyTopic]) -> None:
    t = view.t
    columns = [
        Column(name="topic", label=t("Topic"), kind="link"),
        Column(name="rate", label=t("In per second"), kind="number"),
        Column(name="trend", label=t("Last hour"), kind="trend"),
        Column(name="messages", label=t("Messages"), kind="number"),
        Column(name="written", label=t("Last write")),
    ]
    rows = [
        {
            "key": each.topic,
            "topic": each.topic,
            "topic_href": f"/topics/{quote(each.topic, safe='')}",
            "rate": formats.rate(each.rate_in),
            "trend": formats.trend(each.trend),
            "messages": formats.short_count(each.messages),
            "written": formats.ago(view, each.last_write_ms),
            "written_hint": formats.moment(view, each.last_write_ms),
        }
        for each in found
    ]
    simple_table(columns, rows, label=t("Busiest topics"))


def _groups(view: View, found: list[LaggingGroup]) -> None:
    t = view.t
    columns = [
        Column(name="group", label=t("Group"), kind="link"),
        Column(name="lag", label=t("Backlog"), kind="number"),
        Column(name="trend", label=t("Last hour"), kind="trend"),
        Column(name="delay", label=t("Time lag"), kind="number"),
        Column(name="rate", label=t("Delivered/s, last minute"), kind="number"),
        Column(name="members", label=t("Clients"), kind="number"),
    ]
    rows = [
        {
            "key": each.group,
            "group": each.group,
            "group_href": f"/consumers/{quote(each.group, safe='')}",
            "lag": formats.count(each.lag),
            "trend": formats.trend(each.trend),
            "delay": formats.duration(view, each.delay),
            "rate": formats.rate(each.rate_out),
            "members": formats.count(each.members),
        }
        for each in found
    ]
    simple_table(columns, rows, label=t("Groups with the largest backlog"))
