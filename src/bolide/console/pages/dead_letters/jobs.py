"""A job: how far it is, what became of each message, and its end."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import page
from bolide.console.ui import fields
from bolide.console.ui.formats import count, duration, moment
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import Panel, note
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View, attempt
from bolide.operations.declaration import Role
from bolide.operations.jobs import (
    JobResult,
    JobState,
    JobView,
    cancel_job,
    job_results,
    list_jobs,
    show_job,
)
from bolide.operations.views import Page

TONES = {
    JobState.RUNNING: "info",
    JobState.DONE: "good",
    JobState.CANCELLED: "warning",
    JobState.FAILED: "danger",
}
_OUTCOME_TONES = {
    "SENT": "good",
    "SENT_BEFORE": "quiet",
    "NOT_SENDABLE": "warning",
    "NOT_KNOWN": "warning",
    "FAILED": "danger",
}


def outcome_text(view: View, outcome: str) -> str:
    """What became of a message, for people."""
    t = view.t
    texts = {
        "PLANNED": t("to send"),
        "SENT": t("sent"),
        "SENT_BEFORE": t("sent before"),
        "NOT_SENDABLE": t("not sendable"),
        "NOT_KNOWN": t("perhaps sent before"),
        "FAILED": t("send failed"),
    }
    return texts.get(outcome, outcome)


def outcome_tone(outcome: str) -> str:
    return _OUTCOME_TONES.get(outcome, "quiet")


def state_text(view: View, state: JobState) -> str:
    t = view.t
    texts = {
        JobState.RUNNING: t("running"),
        JobState.DONE: t("finished"),
        JobState.CANCELLED: t("cancelled"),
        JobState.FAILED: t("failed"),
    }
    return texts[state]


def outcomes_text(view: View, job: JobView) -> str:
    parts = [f"{count(number)} {outcome_text(view, name)}" for name, number in job.outcomes.items()]
    return ", ".join(parts) or "—"


@page("/jobs/{job}", title="Job")
def job_page(view: View, job: str) -> None:
    """One job, live."""
    _JobPage(view, job)


class _JobPage:
    def __init__(self, view: View, job: str) -> None:
        self._view = view
        self._t = t = view.t
        self._job = job
        self._was_running = True
        page_header(view, t("Job {id}", id=job), crumbs=[(t("Dead letters"), "/dead-letters")])
        self._panel = Panel(view, self._load, self._render, every=1.0)
        section_title(t("Results"))
        self._outcome = view.query.get("outcome", "")
        columns = [
            Column(name="subject", label=t("Message"), kind="link"),
            Column(name="outcome", label=t("Outcome"), kind="badge"),
            Column(name="target", label=t("Sent to")),
            Column(name="detail", label=t("Detail"), kind="code"),
            Column(name="position", label=t("Position"), kind="code"),
        ]
        self._results: DataTable[JobResult] = DataTable(
            view,
            columns,
            self._load_results,
            self._row,
            label=t("Results"),
            empty=t("No results yet."),
            toolbar=self._filters,
            every=2.0,
        )

    async def _load(self) -> JobView:
        return await self._view.run(show_job, job=self._job)

    async def _load_results(self, request: ListRequest) -> Page[JobResult]:
        return await self._view.run(
            job_results,
            job=self._job,
            outcome=self._outcome,
            page=request.page,
            size=request.size,
        )

    def _filters(self) -> None:
        t = self._t
        names = ("SENT", "SENT_BEFORE", "NOT_SENDABLE", "NOT_KNOWN", "FAILED")
        options = {"": t("All outcomes")} | {name: outcome_text(self._view, name) for name in names}
        chosen = self._outcome if self._outcome in options else ""
        field = fields.choice(t("Outcome"), options, chosen, on_change=self._filtered)
        field.classes("search", remove="full")

    def _filtered(self, event: Any) -> None:
        self._outcome = event.value or ""
        self._view.set_query(outcome=self._outcome)
        self._results.first_page()

    def _row(self, each: JobResult) -> Row:
        group = each.position.partition("/")[0].removeprefix("%DLQ%")
        return {
            "key": each.position or each.subject,
            "subject": each.subject,
            "subject_href": letter_path(group, each.position) if each.position else "",
            "outcome": outcome_text(self._view, each.outcome),
            "outcome_tone": outcome_tone(each.outcome),
            "target": each.target,
            "detail": each.detail,
            "position": each.position,
        }

    def _render(self, job: JobView) -> None:
        view, t = self._view, self._t
        with ui.element("div").classes("toolbar job-head"):
            ui.label(state_text(view, job.state)).classes(f"badge badge-{TONES[job.state]}").props(
                "role=status"
            )
            ui.link(job.target, f"/dead-letters/{quote(job.target, safe='')}")
            if job.state is JobState.RUNNING and view.may(Role.OPERATOR):
                ui.button(t("Cancel the job"), icon="stop", on_click=self._cancel).props(
                    "outline dense no-caps color=negative"
                )
        share = 1.0 if job.to_scan == 0 else job.scanned / job.to_scan if job.to_scan else 0.0
        if job.state is JobState.RUNNING or job.to_scan:
            bar = ui.linear_progress(min(share, 1.0), show_value=False)
            bar.props["aria-label"] = t("Progress")
        ended = job.ended_ms
        facts({
            t("Read"): f"{count(job.scanned)} / {count(job.to_scan)}",
            t("Results"): outcomes_text(view, job),
            t("Started"): moment(view, job.started_ms),
            t("Ended"): moment(view, ended),
            t("Took"): duration(view, None if ended is None else (ended - job.started_ms) / 1000),
        })  # fmt: skip
        if job.error:
            note(job.error, kind="danger", icon="error_outline")
        if job.note:
            note(job.note, kind="warning", icon="warning_amber")
        if job.results_left_out:
            text = t(
                "{count} results are counted, but not kept.", count=count(job.results_left_out)
            )
            note(text, kind="info")
        if job.state is JobState.RUNNING:
            note(t("The job goes on when you close this page."))

    async def _cancel(self) -> None:
        if await attempt(self._view, self._view.run(cancel_job, job=self._job)):
            self._panel.reload()


def jobs_panel(view: View, *, target: str = "") -> Panel[Page[JobView]]:
    """The jobs of the user, newest first; those of one group, or all."""

    async def load() -> Page[JobView]:
        return await view.run(list_jobs, target=target, size=10)

    def render(found: Page[JobView]) -> None:
        t = view.t
        columns = [
            Column(name="started", label=t("Started"), kind="link"),
            Column(name="target", label=t("Group")),
            Column(name="state", label=t("State"), kind="badge"),
            Column(name="read", label=t("Read"), kind="number"),
            Column(name="results", label=t("Results")),
        ]
        rows = [
            {
                "key": job.id,
                "started": moment(view, job.started_ms),
                "started_href": f"/jobs/{job.id}",
                "target": job.target,
                "state": state_text(view, job.state),
                "state_tone": TONES[job.state],
                "read": f"{count(job.scanned)} / {count(job.to_scan)}",
                "results": outcomes_text(view, job),
            }
            for job in found.items
        ]
        simple_table(columns, rows, label=t("Jobs"))

    return Panel(
        view,
        load,
        render,
        every=2.0,
        is_empty=lambda found: not found.items,
        empty=view.t("No dead letters were sent again since the console started."),
    )


def letter_path(group: str, position: str) -> str:
    """The page of a dead letter."""
    return f"/dead-letters/{quote(group, safe='')}/letter?position={quote(position, safe='')}"
