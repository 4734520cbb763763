"""Spark pipelines: what runs, how fast, how far behind, and since when one is silent."""

from dataclasses import replace
from time import time
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields, formats
from bolide.console.ui.charts import Line, TimeChart
from bolide.console.ui.dialogs import confirm_and_run
from bolide.console.ui.layout import Figure, facts, page_header, section_title
from bolide.console.ui.panels import Panel, Poll, failures_note, note
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.declaration import Role
from bolide.operations.pipelines import (
    PipelineRun,
    PipelineSort,
    PipelineView,
    ProgressPoint,
    StopEffect,
    get_pipeline,
    list_pipelines,
    stop_pipeline,
)
from bolide.operations.views import Page
from bolide.protocol.bodies.pipelines import State

_EVERY = 5.0
_RANGES = (15, 60, 120)
_TONES = {
    State.STARTING: "info",
    State.RUNNING: "good",
    State.STOPPING: "warning",
    State.FAILED: "danger",
    State.LOST: "danger",
}
_MAX_RUNS = 20


@page("/pipelines", title="Pipelines", section=Section.DATA, icon="water", order=1)
def pipelines_page(view: View) -> None:
    """All pipelines that have reported, those that need attention first."""
    t = view.t
    page_header(
        view, t("Pipelines"), subtitle=t("Spark jobs on this cluster, as they report themselves")
    )

    async def load(request: ListRequest) -> Page[PipelineRun]:
        return await view.run(
            list_pipelines,
            search=request.search,
            state=_state(view.query.get("state", "")),
            sort=PipelineSort(request.sort)
            if request.sort in {*PipelineSort}
            else PipelineSort.STATE,
            descending=request.descending,
            page=request.page,
            size=request.size,
        )

    def row(run: PipelineRun) -> Row:
        return {
            "key": run.name,
            "name": run.name,
            "name_href": pipeline_path(run.name),
            "name_hint": run.text,
            "state": state_text(view, run),
            "state_tone": _TONES.get(run.state, "quiet"),
            "state_hint": run.error or None,
            "rate": formats.rate(run.rows_in_per_second if run.state.is_live else None),
            "out": formats.rate(run.rows_out_per_second if run.state.is_live else None),
            "behind": formats.short_count(run.behind),
            "lag": formats.duration(view, run.behind_seconds),
            "committed": formats.ago(view, run.committed_ms),
            "reported": formats.ago(view, run.reported_ms),
            "kind": run.kind or formats.UNKNOWN,
            "host": run.host,
        }

    def toolbar() -> None:
        states = {"": t("Every state")} | {state.value: _labels(view)[state] for state in State}

        def chosen(event: object) -> None:
            del event
            view.set_query(state=choice.value or None)
            table.first_page()

        known = view.query.get("state", "")
        value = known if known in states else ""
        choice = fields.choice(t("State"), states, value, on_change=chosen)
        choice.classes("filter-state", remove="full")

    table = DataTable(
        view,
        [
            Column(name="name", label=t("Pipeline"), kind="link", sortable=True),
            Column(name="state", label=t("State"), kind="badge", sortable=True),
            Column(name="rate", label=t("Rows/s in"), kind="number", sortable=True),
            Column(name="out", label=t("Rows/s out"), kind="number"),
            Column(name="behind", label=t("Behind"), kind="number", sortable=True),
            Column(name="lag", label=t("Behind in time"), kind="number"),
            Column(name="committed", label=t("Last commit")),
            Column(name="reported", label=t("Last report"), sortable=True),
            Column(name="kind", label=t("Kind")),
            Column(name="host", label=t("Host")),
        ],
        load,
        row,
        label=t("Pipelines"),
        sort="state",
        search=t("Name, host or what it does"),
        every=_EVERY,
        empty=t("No pipeline has reported recently."),
        empty_hint=t("Start one with “bolide pipeline run”; it reports itself every few seconds."),
        toolbar=toolbar,
    )


@page("/pipelines/{pipeline}", title="Pipeline")
def pipeline_page(view: View, pipeline: str) -> None:
    """One pipeline: its last run, its figures over time, and earlier runs."""
    _Pipeline(view, pipeline)


class _Pipeline:
    """The page of a pipeline. Charts and figures stay, the rest is built anew when it changes."""

    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name
        t = self._t = view.t
        page_header(
            view, name, crumbs=[(t("Pipelines"), "/pipelines")], actions=self._build_actions
        )
        with ui.element("div").classes("figures"):
            self._state = Figure(t("State"))
            self._in = Figure(t("Rows/s in"))
            self._out = Figure(t("Rows/s out"))
            self._behind = Figure(t("Behind"))
            self._lag = Figure(t("Behind in time"))
            self._committed = Figure(t("Last commit"))
        Panel(view, self._load_steady, self._render, every=_EVERY)
        with ui.element("div").classes("toolbar toolbar-plain"):
            section_title(t("Recent progress"))
            self._range = fields.choice(
                t("Time range"),
                {minutes: t("Last {count} minutes", count=minutes) for minutes in _RANGES},
                self._minutes,
                on_change=self._change_range,
            )
            self._range.classes("filter-state", remove="full")
        with ui.element("div").classes("columns"):
            with ui.element("section").classes("panel"):
                ui.label(t("Rows per second")).classes("chart-title")
                self._rates = TimeChart(t("Rows per second"))
            with ui.element("section").classes("panel"):
                ui.label(t("Messages behind")).classes("chart-title")
                self._backlog = TimeChart(t("Messages behind"), area=True)
        section_title(t("Source topics"))
        Panel(
            view,
            self._load_last,
            self._show_topics,
            every=_EVERY,
            is_empty=lambda run: not run.topics,
            empty=t("It has told of no topic that it reads."),
        )
        section_title(t("Recent runs"))
        Panel(view, self._load_runs, self._show_runs, every=4 * _EVERY)
        self._poll = Poll(view, self._load, self._draw, on_error=_already_shown, every=_EVERY)

    @property
    def _minutes(self) -> int:
        known = self._view.query.get("minutes", "")
        return int(known) if known in {str(each) for each in _RANGES} else 60

    def _change_range(self) -> None:
        self._view.set_query(minutes=self._range.value if self._range.value != 60 else None)
        self._poll.now()

    async def _load(self) -> PipelineView:
        return await self._view.run(get_pipeline, pipeline=self._name, minutes=self._minutes)

    async def _load_steady(self) -> PipelineView:
        """Without what changes with every report, so that the panel is not built anew for it."""
        found = await self._load()
        steady = replace(
            found.last,
            reported_ms=0,
            rows=0,
            total=None,
            rows_in_per_second=0,
            rows_out_per_second=None,
            batch=None,
            behind=None,
            behind_seconds=None,
            topics=[],
            committed_ms=None,
        )
        return replace(found, last=steady, runs=[], points=[])

    async def _load_last(self) -> PipelineRun:
        return (await self._load()).last

    async def _load_runs(self) -> list[PipelineRun]:
        return (await self._load()).runs[:_MAX_RUNS]

    def _build_actions(self) -> None:
        self._stop = ui.button(self._t("Stop"), icon="stop", on_click=self._ask_to_stop)
        self._stop.props("outline no-caps color=negative")
        self._stop.set_visibility(False)

    # Figures and charts

    def _draw(self, found: PipelineView) -> None:
        view, last = self._view, found.last
        live = last.state.is_live
        self._stop.set_visibility(live and view.may(Role.OPERATOR))
        tone = {"good": "good", "danger": "danger", "warning": "warning"}
        self._state.set(
            state_text(view, last),
            tone=tone.get(_TONES.get(last.state, ""), ""),
            hint=formats.ago(view, last.reported_ms),
        )
        self._in.set(formats.rate(last.rows_in_per_second if live else None), hint=self._rows(last))
        self._out.set(
            formats.rate(last.rows_out_per_second if live else None),
            hint="" if last.rows_out_per_second is not None else self._t("not told by the sink"),
        )
        self._behind.set(formats.short_count(last.behind), hint=self._t("as of the last batch"))
        self._lag.set(formats.duration(view, last.behind_seconds))
        batch = "" if last.batch is None else self._t("batch {number}", number=last.batch)
        self._committed.set(formats.ago(view, last.committed_ms), hint=batch)
        t = self._t
        self._rates.show(
            [
                Line(name=t("in"), points=_line(found.points, "rows_in_per_second")),
                Line(name=t("out"), points=_line(found.points, "rows_out_per_second")),
            ]
        )
        self._backlog.show([Line(name=t("Behind"), points=_line(found.points, "behind"))])

    def _rows(self, run: PipelineRun) -> str:
        if run.total is None:
            return self._t("{rows} rows in this run", rows=formats.count(run.rows))
        return self._t(
            "{rows} of {total} rows", rows=formats.count(run.rows), total=formats.count(run.total)
        )

    # What changes rarely

    def _render(self, found: PipelineView) -> None:
        view, t, last = self._view, self._t, found.last
        failures_note(view, found.failures)
        if last.error:
            note(last.error, kind="danger", icon="error_outline")
        if last.silent_since_ms is not None:
            note(
                t(
                    "No report since {time}: it was killed, or cannot reach the cluster.",
                    time=formats.moment(view, last.silent_since_ms),
                ),
                kind="warning",
                icon="warning_amber",
            )
        facts(
            {
                t("What it does"): last.text or formats.UNKNOWN,
                t("Kind"): last.kind or formats.UNKNOWN,
                t("Host"): f"{last.host} ({last.pid})" if last.host else formats.UNKNOWN,
                t("Spark"): last.spark or formats.UNKNOWN,
                t("Started"): formats.moment(view, last.started_ms),
                t("Run"): last.run,
            }
        )
        if last.group:
            with ui.element("div").classes("button-row"):
                ui.link(
                    t("Consumer group {name}", name=last.group),
                    f"/consumers/{quote(last.group, safe='')}",
                )
        for problem in last.problems:
            when = formats.moment(view, problem.time_ms)
            note(f"{when}  {problem.text}", kind="warning", icon="report_problem")

    def _show_topics(self, run: PipelineRun) -> None:
        t = self._t
        columns = [
            Column(name="topic", label=t("Topic"), kind="link"),
            Column(name="messages", label=t("Messages behind"), kind="number"),
            Column(name="seconds", label=t("Oldest unread message"), kind="number"),
        ]
        rows: list[Row] = [
            {
                "key": each.topic,
                "topic": each.topic,
                "topic_href": f"/topics/{quote(each.topic, safe='')}",
                "messages": formats.count(each.messages),
                "seconds": formats.duration(self._view, each.seconds),
            }
            for each in run.topics
        ]
        simple_table(columns, rows, label=t("Source topics"))

    def _show_runs(self, runs: list[PipelineRun]) -> None:
        t, view = self._t, self._view
        columns = [
            Column(name="started", label=t("Started")),
            Column(name="state", label=t("State"), kind="badge"),
            Column(name="rows", label=t("Rows"), kind="number"),
            Column(name="reported", label=t("Last report")),
            Column(name="host", label=t("Host")),
            Column(name="error", label=t("Error")),
        ]
        rows: list[Row] = [
            {
                "key": run.run,
                "started": formats.moment(view, run.started_ms),
                "state": _labels(view)[run.state],
                "state_tone": _TONES.get(run.state, "quiet"),
                "rows": formats.count(run.rows),
                "reported": formats.moment(view, run.reported_ms),
                "host": run.host,
                "error": run.error,
            }
            for run in runs
        ]
        simple_table(columns, rows, label=t("Recent runs"))

    async def _ask_to_stop(self) -> None:
        t = self._t

        def show(effect: StopEffect) -> None:
            facts({t("What it does"): effect.text, t("Host"): effect.host, t("Run"): effect.run})
            note(t("It ends after its current batch. The next run goes on where this one ends."))

        await confirm_and_run(
            self._view,
            stop_pipeline,
            {"pipeline": self._name},
            title=t("Stop pipeline {name}?", name=self._name),
            button=t("Stop"),
            show_effect=show,
            done=t("The pipeline was asked to stop."),
            on_done=lambda _: self._poll.now(),
        )


def _already_shown(error: BolideError) -> None:
    """The panel above shows the error."""
    del error


def pipeline_path(name: str) -> str:
    return f"/pipelines/{quote(name, safe='')}"


def state_text(view: View, run: PipelineRun) -> str:
    """The state; of a lost run since when it is silent."""
    if run.silent_since_ms is not None:
        silence = max(time() - run.silent_since_ms / 1000, 1)
        return view.t("silent for {time}", time=formats.duration(view, silence))
    return _labels(view)[run.state]


def _labels(view: View) -> dict[State, str]:
    t = view.t
    return {
        State.STARTING: t("starting"),
        State.RUNNING: t("running"),
        State.STOPPING: t("stopping"),
        State.STOPPED: t("stopped"),
        State.FINISHED: t("finished"),
        State.FAILED: t("failed"),
        State.LOST: t("lost"),
    }


def _state(text: str) -> State | None:
    return State(text) if text in {*State} else None


def _line(points: list[ProgressPoint], name: str) -> list[tuple[float, float | None]]:
    """The values of one figure; a gap between two runs is a gap in the line."""
    line: list[tuple[float, float | None]] = []
    run = points[0].run if points else ""
    for point in points:
        if point.run != run:
            line.append((point.time_ms - 1, None))
            run = point.run
        line.append((point.time_ms, getattr(point, name)))
    return line
