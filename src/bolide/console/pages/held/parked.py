"""Parked keys: the groups that have some, and those of one group."""

from functools import partial
from typing import Any
from urllib.parse import quote

from nicegui import ui

from bolide.console.pages.declaration import Section, page
from bolide.console.ui.dialogs import confirm_and_run
from bolide.console.ui.formats import ago, count, moment
from bolide.console.ui.layout import page_header
from bolide.console.ui.panels import note
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row, simple_table
from bolide.console.ui.view import View
from bolide.operations.declaration import Role
from bolide.operations.held.parked import (
    ParkedKey,
    ParkedPlan,
    ParkingGroup,
    dead_letter_parked,
    list_parked_keys,
    list_parking_groups,
    resume_parked,
)
from bolide.operations.views import Page


@page("/parked", title="Parked keys", section=Section.HELD, icon="pause_circle", order=3)
def parked_page(view: View) -> None:
    """All groups that have parked keys."""
    t = view.t
    page_header(
        view,
        t("Parked keys"),
        subtitle=t("Keys that ordered consumers set aside after a failure, so that others go on."),
    )

    async def load(request: ListRequest) -> Page[ParkingGroup]:
        return await view.run(
            list_parking_groups, search=request.search, page=request.page, size=request.size
        )

    def row(each: ParkingGroup) -> Row:
        return {
            "key": each.group,
            "group": each.group,
            "group_href": f"/parked/{quote(each.group, safe='')}",
            "keys": count(each.keys),
            "messages": count(each.messages),
            "since": ago(view, each.since_ms),
        }

    columns = [
        Column(name="group", label=t("Group"), kind="link"),
        Column(name="keys", label=t("Parked keys"), kind="number"),
        Column(name="messages", label=t("Messages"), kind="number"),
        Column(name="since", label=t("Parked longest")),
    ]
    DataTable(
        view,
        columns,
        load,
        row,
        label=t("Groups with parked keys"),
        search=t("Search groups"),
        every=5.0,
        empty=t("No group has parked keys."),
        empty_hint=t("Ordered consumers of Bolide's client park keys with on_poison=park."),
    )


@page("/parked/{group}", title="Parked keys of a group")
def parked_group_page(view: View, group: str) -> None:
    """The parked keys of one group."""
    _GroupPage(view, group)


class _GroupPage:
    def __init__(self, view: View, group: str) -> None:
        self._view = view
        self._t = t = view.t
        self._group = group
        may = view.may(Role.OPERATOR)
        page_header(
            view,
            group,
            subtitle=t("Parked keys of a group"),
            crumbs=[(t("Parked keys"), "/parked")],
            actions=self._actions if may else None,
        )
        columns = [
            Column(name="name", label=t("Key"), kind="code"),
            Column(name="state", label=t("State"), kind="badge"),
            Column(name="messages", label=t("Messages"), kind="number"),
            Column(name="since", label=t("Parked since")),
            Column(name="error", label=t("Error")),
            Column(name="topic", label=t("Topic"), kind="link"),
            Column(name="queue", label=t("Queue")),
            Column(name="offsets", label=t("Offsets")),
        ]
        actions = []
        if may:
            actions = [
                Action(
                    name="resume",
                    label=t("Resume"),
                    icon="play_arrow",
                    handler=partial(self._one, dead=False),
                ),
                Action(
                    name="dead",
                    label=t("To the dead letters"),
                    icon="report",
                    handler=partial(self._one, dead=True),
                ),
            ]
        self._table: DataTable[ParkedKey] = DataTable(
            view,
            columns,
            self._load,
            self._row,
            label=t("Parked keys"),
            search=t("Search keys and errors"),
            every=4.0,
            empty=t("No key is parked now."),
            actions=actions,
        )

    def _actions(self) -> None:
        t = self._t
        ui.button(t("Resume all"), on_click=lambda: self._every(dead=False)).props(
            "unelevated no-caps icon=play_arrow"
        )
        ui.button(t("All to the dead letters"), on_click=lambda: self._every(dead=True)).props(
            "outline no-caps icon=report color=negative"
        )

    async def _load(self, request: ListRequest) -> Page[ParkedKey]:
        return await self._view.run(
            list_parked_keys,
            group=self._group,
            search=request.search,
            page=request.page,
            size=request.size,
        )

    def _row(self, each: ParkedKey) -> Row:
        view, t = self._view, self._t
        return {
            "key": f"{each.topic}/{each.broker}/{each.queue} {each.key}",
            "name": each.key or t("(no key)"),
            "own_key": each.key,
            "state": t("resuming") if each.is_resuming else t("parked"),
            "state_tone": "info" if each.is_resuming else "warning",
            "messages": count(each.messages),
            "since": ago(view, each.since_ms),
            "since_hint": moment(view, each.since_ms),
            "error": each.error,
            "topic": each.topic,
            "topic_href": f"/topics/{quote(each.topic, safe='')}",
            "queue": f"{each.broker}/{each.queue}",
            "offsets": f"{each.first_offset} … {each.last_offset}",
        }

    async def _one(self, row: Row, *, dead: bool) -> None:
        choice = {"key": str(row["own_key"]), "topic": str(row["topic"])}
        await self._decide(choice, dead=dead)

    async def _every(self, *, dead: bool) -> None:
        await self._decide({"every": True}, dead=dead)

    async def _decide(self, choice: dict[str, Any], *, dead: bool) -> None:
        t = self._t
        await confirm_and_run(
            self._view,
            dead_letter_parked if dead else resume_parked,
            {"group": self._group, **choice},
            title=t("Make dead letters of these keys?") if dead else t("Resume these keys?"),
            button=t("Make dead letters") if dead else t("Resume"),
            show_effect=lambda plan: self._show_plan(plan, dead=dead),
            danger=dead,
            done=t("The consumers that are online do it."),
            on_done=lambda _: self._table.reload(),
        )

    def _show_plan(self, plan: ParkedPlan, *, dead: bool) -> None:
        t = self._t
        counts = {"messages": count(plan.messages), "keys": count(plan.keys)}
        if dead:
            text = t("{messages} messages of {keys} keys become dead letters.", **counts)
            note(text, kind="danger", icon="warning_amber")
        else:
            text = t("{messages} messages of {keys} keys are handled again, in order.", **counts)
            note(text)
        columns = [
            Column(name="name", label=t("Key"), kind="code"),
            Column(name="messages", label=t("Messages"), kind="number"),
            Column(name="error", label=t("Error")),
        ]
        rows = [
            {
                "key": f"{each.broker}/{each.queue} {each.key}",
                "name": each.key or t("(no key)"),
                "messages": count(each.messages),
                "error": each.error,
            }
            for each in plan.first[:20]
        ]
        simple_table(columns, rows, label=t("Parked keys"))
