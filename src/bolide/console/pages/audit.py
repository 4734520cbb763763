"""Who changed what: one list of the console's audit and the brokers', with before and after."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import fields, formats
from bolide.console.ui.dialogs import FormDialog
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import note
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations.audit import (
    AuditedChange,
    AuditList,
    AuditOrigin,
    Difference,
    list_changes,
)
from bolide.operations.declaration import Role
from bolide.operations.views import Page

_DAYS = (1, 7, 30, 365)
_DIFFERENCES_SHOWN = 2
_MAX_VALUE = 24
_MAX_TARGET = 60


@page("/audit", title="Audit", section=Section.SECURITY, icon="history", order=2, role=Role.ADMIN)
def audit_page(view: View) -> None:
    """The list; each entry opens with its differences."""
    _Audit(view)


class _Audit:
    """The table, its filters, and the entry that is open."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: dict[str, AuditedChange] = {}
        self._to_open = view.query.get("entry", "")
        t = self._t = view.t
        page_header(view, t("Audit"), subtitle=t("Who changed what, before and after"))
        self._notes = ui.element("div").classes("notes")
        self._table = DataTable(
            view,
            [
                Column(name="time", label=t("Time")),
                Column(name="result", label=t("Result"), kind="badge"),
                Column(name="user", label=t("User")),
                Column(name="operation", label=t("Operation"), kind="code"),
                Column(name="target", label=t("Target")),
                Column(name="changes", label=t("Changes")),
                Column(name="origin", label=t("Recorded by")),
            ],
            self._load,
            self._row,
            label=t("Audit"),
            search=t("User, operation, target or value"),
            actions=[
                Action(
                    name="open", label=t("Before and after"), icon="difference", handler=self._open
                )
            ],
            every=15.0,
            empty=t("Nothing was changed in this time."),
            empty_hint=t(
                "The console records what is done with it; Bolide's brokers record what any"
                " tool does."
            ),
            toolbar=self._toolbar,
        )

    def _toolbar(self) -> None:
        t, query = self._t, self._view.query
        results = {"": t("Every result"), "done": t("Done"), "failed": t("Failed or denied")}
        origins = {
            "": t("Every source"),
            AuditOrigin.CONSOLE.value: t("Console"),
            AuditOrigin.BROKER.value: t("Brokers"),
        }
        days = {each: t("Last {count} days", count=each) for each in _DAYS}
        self._result = self._filter(t("Result"), results, query.get("result", ""))
        self._origin = self._filter(t("Recorded by"), origins, query.get("origin", ""))
        known = query.get("days", "")
        chosen = int(known) if known in {str(each) for each in _DAYS} else 7
        self._days = self._filter(t("Time range"), days, chosen)

    def _filter(self, label: str, options: Mapping[Any, str], value: object) -> ui.select:
        chosen = value if value in options else next(iter(options))
        choice = fields.choice(label, options, chosen, on_change=self._change_filter)
        choice.classes("filter-state", remove="full")
        return choice

    def _change_filter(self) -> None:
        self._view.set_query(
            result=self._result.value,
            origin=self._origin.value,
            days=self._days.value if self._days.value != 7 else None,
            entry=None,
        )
        self._table.first_page()

    async def _load(self, request: ListRequest) -> Page[AuditedChange]:
        since = datetime.now(UTC) - timedelta(days=self._days.value)
        # Whole minutes, so that pages opened at the same time share the brokers' answers.
        since_ms = int(since.timestamp()) // 60 * 60_000
        found = await self._view.run(
            list_changes,
            since_ms=since_ms,
            origin=AuditOrigin(self._origin.value) if self._origin.value else None,
            failed={"done": False, "failed": True}.get(self._result.value),
            search=request.search,
            page=request.page,
            size=request.size,
        )
        self._shown = {each.id: each for each in found.items}
        self._show_notes(found)
        if self._to_open in self._shown:
            self._show_change(self._shown[self._to_open])
        self._to_open = ""
        return Page(
            items=found.items,
            total=found.total,
            page=found.page,
            size=found.size,
            failures=found.failures,
        )

    def _show_notes(self, found: AuditList) -> None:
        t = self._t
        self._notes.clear()
        with self._notes:
            if not found.complete:
                note(
                    t("A broker has more records than are looked at: choose a shorter time."),
                    kind="warning",
                )
            if not found.console_recorded:
                note(t("This console does not record what is done through it."), kind="warning")
            if found.without_audit:
                note(
                    t(
                        "These brokers keep no audit, as RocketMQ's do not: {brokers}. What other"
                        " tools do there is not recorded.",
                        brokers=", ".join(found.without_audit),
                    ),
                    kind="warning",
                )

    def _row(self, change: AuditedChange) -> Row:
        t, view = self._t, self._view
        origin = t("Console") if change.origin is AuditOrigin.CONSOLE else change.server
        return {
            "key": change.id,
            "time": formats.moment(view, change.time_ms),
            "time_hint": formats.ago(view, change.time_ms),
            "user": change.user or t("nobody"),
            "user_hint": change.source or None,
            "operation": change.operation,
            "target": _short(change.target, _MAX_TARGET) or formats.UNKNOWN,
            "target_hint": change.target if len(change.target) > _MAX_TARGET else None,
            "changes": self._summary(change),
            "result": self._result_text(change),
            "result_tone": "good" if change.succeeded else "danger",
            "result_hint": change.error or None,
            "origin": origin,
        }

    def _result_text(self, change: AuditedChange) -> str:
        t = self._t
        if change.denied:
            return t("denied") + (
                f" \N{MULTIPLICATION SIGN} {change.count}" if change.count > 1 else ""
            )
        return t("done") if change.succeeded else t("failed")

    def _summary(self, change: AuditedChange) -> str:
        shown = [_difference_text(each) for each in change.differences[:_DIFFERENCES_SHOWN]]
        more = len(change.differences) - len(shown) + change.more_differences
        if more > 0:
            shown.append(self._t("and {count} more", count=more))
        return "; ".join(shown) or formats.UNKNOWN

    def _open(self, row: Row) -> None:
        change = self._shown.get(row["key"])
        if change is not None:
            self._view.set_query(entry=change.id)
            self._show_change(change)

    def _show_change(self, change: AuditedChange) -> None:
        t, view = self._t, self._view
        title = f"{change.operation} {change.target}".strip()
        with FormDialog(view, title, t("Copy link"), wide=True, stay=True) as form:
            facts(
                {
                    t("Time"): formats.moment(view, change.time_ms),
                    t("User"): change.user or t("nobody"),
                    t("Source"): change.source or formats.UNKNOWN,
                    t("Result"): self._result_text(change),
                    t("Recorded by"): change.server or t("Console"),
                }
            )
            if change.error:
                note(change.error, kind="danger", icon="error_outline")
            self._show_differences(change)
            for name, text in (
                (t("Arguments"), change.arguments),
                (t("Before"), change.before),
                (t("After"), change.after),
            ):
                if text:
                    with ui.expansion(name).classes("full"):
                        ui.label(_indented(text)).classes("mono code-block")
        form.dialog.on("hide", lambda: view.set_query(entry=None))

        async def copy() -> None:
            # The whole address, which only the browser knows.
            path = f"/audit?{urlencode({'entry': change.id, 'days': self._days.value})}"
            with view.client:
                write = f"navigator.clipboard.writeText(location.origin + {json.dumps(path)})"
                view.client.run_javascript(f"navigator.clipboard && {write}")
            view.tell(t("Copied"))

        form.on_submit(copy)
        form.open()

    def _show_differences(self, change: AuditedChange) -> None:
        t = self._t
        if not change.differences:
            ui.label(t("It does not tell what was changed."))
            return
        section_title(t("Changes"))
        rows: list[Row] = [
            {
                "key": str(number),
                "name": each.name or t("value"),
                "before": "" if each.before is None else f"\N{MINUS SIGN} {each.before}",
                "after": "" if each.after is None else f"+ {each.after}",
            }
            for number, each in enumerate(change.differences)
        ]
        columns = [
            Column(name="name", label=t("Name"), kind="code"),
            Column(name="before", label=t("Before"), kind="code"),
            Column(name="after", label=t("After"), kind="code"),
        ]
        simple_table(columns, rows, label=t("Changes")).classes("diff-table")
        if change.more_differences:
            ui.label(t("and {count} more", count=change.more_differences)).classes("small")


def _difference_text(difference: Difference) -> str:
    before, after = _short(difference.before), _short(difference.after)
    if difference.before is None:
        return f"+ {difference.name} {after}"
    if difference.after is None:
        return f"\N{MINUS SIGN} {difference.name} {before}"
    return f"{difference.name} {before} → {after}"


def _short(text: str | None, longest: int = _MAX_VALUE) -> str:
    if text is None:
        return ""
    return text if len(text) <= longest else f"{text[:longest]}…"


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:  # it was cut
        return text
