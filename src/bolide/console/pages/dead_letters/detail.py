"""One dead letter with its history, and the dialogs that send dead letters again."""

from typing import Any
from urllib.parse import quote

from nicegui import background_tasks, ui

from bolide.console.languages import Translate
from bolide.console.pages.dead_letters.jobs import outcome_text, outcome_tone
from bolide.console.pages.declaration import page
from bolide.console.ui import fields
from bolide.console.ui.contents import body_block, properties_table
from bolide.console.ui.dialogs import EffectChanged, FormDialog
from bolide.console.ui.formats import ago, count, moment, size
from bolide.console.ui.layout import facts, page_header, section_title
from bolide.console.ui.panels import Panel, failures_note, loading, note
from bolide.console.ui.tables import Column, simple_table
from bolide.console.ui.view import View
from bolide.errors import BolideError
from bolide.operations.dead_letters.listing import show_dead_letter
from bolide.operations.dead_letters.redrives import (
    EditableLetter,
    RedrivePlan,
    draft_of_dead_letter,
    redrive_dead_letters,
    resend_edited,
)
from bolide.operations.dead_letters.views import Attempt, LetterDetail, LetterState
from bolide.operations.declaration import Role
from bolide.operations.errors import BadInput, ConfirmationNeeded
from bolide.operations.jobs import JobView
from bolide.operations.messages.sending import BodyFormat, Draft
from bolide.operations.views import reason_of


@page("/dead-letters/{group}/letter", title="Dead letter")
def dead_letter_page(view: View, group: str) -> None:
    """The dead letter at the position in the query."""
    _LetterPage(view, group, view.query.get("position", ""))


class _LetterPage:
    def __init__(self, view: View, group: str, position: str) -> None:
        self._view = view
        self._t = t = view.t
        self._group = group
        self._position = position
        page_header(
            view,
            t("Dead letter"),
            subtitle=position,
            crumbs=[
                (t("Dead letters"), "/dead-letters"),
                (group, f"/dead-letters/{quote(group, safe='')}"),
            ],
            actions=self._actions if view.may(Role.OPERATOR) else None,
        )
        self._panel = Panel(view, self._load, self._render)

    def _actions(self) -> None:
        t = self._t
        ui.button(t("Send again"), on_click=self._redrive).props("unelevated no-caps icon=replay")
        ui.button(t("Edit and send"), on_click=self._edit).props("outline no-caps icon=edit")

    async def _load(self) -> LetterDetail:
        return await self._view.run(show_dead_letter, group=self._group, position=self._position)

    def _render(self, detail: LetterDetail) -> None:
        view, t = self._view, self._t
        letter = detail.letter
        if letter.state is LetterState.RESENT:
            text = t("It was sent again already: its copy is {id}.", id=letter.resent_as)
            note(text, kind="good", icon="check_circle")
        elif letter.state is LetterState.STUCK:
            text = t("It cannot be sent to where it came from: edit it, or choose another topic.")
            note(text, kind="warning", icon="warning_amber")
        facts({
            t("Reason"): letter.reason,
            t("Given up"): f"{moment(view, letter.died_ms)} ({ago(view, letter.died_ms)})",
            t("Sent first"): moment(view, letter.born_ms),
            t("Tries"): count(letter.tries),
            t("Topic"): letter.origin_topic or "—",
            t("Keys"): " ".join(letter.keys) or "—",
            t("Tag"): letter.tags or "—",
            t("Size"): size(letter.size),
            t("Message id"): letter.message_id,
            t("Id of the dead letter"): letter.offset_message_id,
        })  # fmt: skip
        if letter.origin_topic is not None:
            topic = quote(letter.origin_topic, safe="")
            with ui.element("div").classes("button-row"):
                ui.link(t("The message as it was sent"), f"/messages/{topic}/{letter.message_id}")
                ui.link(t("Its trace"), f"/traces/{letter.message_id}?topic={topic}")
        section_title(t("Tries so far"))
        self._history(detail)
        section_title(t("Body"))
        body_block(view, detail.body, detail.body_format)
        section_title(t("Properties"))
        properties_table(view, detail.properties, label=t("Properties"))

    def _history(self, detail: LetterDetail) -> None:
        view, t = self._view, self._t
        if detail.history_failure:
            note(detail.history_failure, kind="warning", icon="warning_amber")
        if not detail.history:
            ui.label(t("No copy of an earlier try is stored any more.")).classes("page-subtitle")
        with ui.element("ol").classes("attempts"):
            for number, each in enumerate(detail.history):
                with ui.element("li"):
                    ui.label(moment(view, each.stored_ms)).classes("figure")
                    ui.label(attempt_text(t, each, is_first=number == 0))
            if not any(each.is_resent for each in detail.history):
                with ui.element("li").classes("attempt-end"):
                    ui.label(moment(view, detail.letter.died_ms)).classes("figure")
                    ui.label(t("given up: {reason}", reason=detail.letter.reason))

    def _redrive(self) -> None:
        RedriveDialog(self._view, self._group, {"positions": [self._position]}).open()

    async def _edit(self) -> None:
        try:
            found = await self._view.run(
                draft_of_dead_letter, group=self._group, position=self._position
            )
        except BolideError as error:
            self._view.tell_error(error)
            return
        _EditDialog(self._view, self._group, found, self._panel.reload)


def attempt_text(t: Translate, each: Attempt, *, is_first: bool) -> str:
    """What a stored copy of the message tells; the copies of one sent again say so themselves."""
    number = each.tries_before + 1
    if each.is_resent and number > 1:
        return t("try {number} of the copy", number=number)
    if each.is_resent:
        return t("sent again to {topic}", topic=each.topic)
    if is_first and number == 1:
        return t("sent to {topic}", topic=each.topic)
    return t("try {number} from {topic}", number=number, topic=each.topic)


class _EditDialog:
    """A dead letter as a form, to be sent as a new message."""

    def __init__(self, view: View, group: str, found: EditableLetter, on_sent: Any) -> None:
        t = view.t
        self._view, self._group, self._found, self._on_sent = view, group, found, on_sent
        draft = found.message
        self._form = FormDialog(view, t("Edit and send as a new message"), t("Send"), wide=True)
        with self._form:
            self._topic = fields.text(t("Topic"), found.topic or "")
            with ui.element("div").classes("filters"):
                self._keys = fields.text(t("Keys, separated by blanks"), " ".join(draft.keys))
                self._tags = fields.text(t("Tag"), draft.tags)
                self._sharding = fields.text(t("Sharding key"), draft.sharding_key)
            formats = {
                BodyFormat.TEXT: t("Text"),
                BodyFormat.JSON: "JSON",
                BodyFormat.HEX: t("Hexadecimal"),
            }
            self._format = fields.choice(t("Format of the body"), formats, draft.body_format)
            self._body = fields.area(t("Body"), draft.body, rows=10)
            lines = "\n".join(f"{name}={value}" for name, value in draft.properties.items())
            hint = t("One property per line: name=value")
            self._properties = fields.area(t("Properties"), lines, rows=3, hint=hint)
            note(t("The dead letter stays. The new message has an id of its own."))
        self._form.on_submit(self._submit)
        self._form.open()

    async def _submit(self) -> None:
        view, t = self._view, self._view.t
        draft = Draft(
            body=self._body.value or "",
            body_format=self._format.value,
            tags=(self._tags.value or "").strip(),
            keys=(self._keys.value or "").split(),
            properties=_properties(self._properties.value or ""),
            sharding_key=(self._sharding.value or "").strip(),
        )
        sent = await view.run(
            resend_edited,
            group=self._group,
            position=self._found.position,
            topic=(self._topic.value or "").strip(),
            message=draft,
        )
        view.tell(t("Sent as message {id}", id=sent.messages[0].message_id))
        self._on_sent()


class RedriveDialog:
    """Asks where dead letters go, shows what would become of each, and starts the job."""

    def __init__(self, view: View, group: str, arguments: dict[str, Any]) -> None:
        """`arguments` are filters or positions, as `redrive_dead_letters` takes them."""
        t = view.t
        self._view, self._group, self._chosen = view, group, arguments
        self._token = ""
        self._end_ms: int | None = None
        self._form = FormDialog(view, t("Send dead letters again"), t("Send"), wide=True)
        with self._form:
            goals = {
                "origin": t("to the topic that each came from"),
                "group": t("only to this group, by its retry topic (not for POP consumers)"),
                "topic": t("to another topic"),
            }
            self._goal = fields.choice(t("Where to"), goals, "origin", on_change=self._changed)
            self._topic = fields.text(t("Topic")).on("blur", self._changed)
            self._topic.on("keydown.enter", self._changed)
            self._topic.set_visibility(False)
            self._effect = ui.element("div").classes("effect")
        self._form.on_submit(self._submit)

    def open(self) -> None:
        self._form.open()
        self._look()

    def _changed(self) -> None:
        self._topic.set_visibility(self._goal.value == "topic")
        self._look()

    def _look(self) -> None:
        background_tasks.create(self._load(), name="plan", context=self._effect)

    def _arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {"group": self._group, **self._chosen}
        if self._goal.value == "group":
            found["to_group"] = True
        elif self._goal.value == "topic":
            found["to"] = (self._topic.value or "").strip()
        return found

    async def _load(self) -> None:
        self._form.button.set_enabled(False)
        self._form.show_error("")
        self._effect.clear()
        arguments = self._arguments()
        if self._goal.value == "topic" and not arguments["to"]:
            return
        with self._effect:
            loading()
        try:
            plan, token = await self._view.preview(redrive_dead_letters, **arguments)
        except BolideError as error:
            if not self._effect.is_deleted:
                self._effect.clear()
                self._form.show_error(reason_of(error))
            return
        if self._effect.is_deleted or arguments != self._arguments():
            return
        self._token = token
        self._effect.clear()
        with self._effect:
            self._render(plan)
        can_send = plan.outcomes.get("PLANNED", 0) > 0 or plan.examined < plan.in_range
        self._form.button.set_enabled(can_send)

    def _render(self, plan: RedrivePlan) -> None:
        view, t = self._view, self._view.t
        failures_note(view, plan.failures)
        for target in plan.targets:
            readers = "—" if target.readers is None else ", ".join(target.readers)
            text = t(
                "{count} go to topic {topic}, read by: {readers}",
                count=count(target.messages),
                topic=target.topic,
                readers=readers or t("no group yet"),
            )
            others = target.readers is None or [*target.readers] != [self._group]
            note(text, kind="warning" if others else "info")
        if not plan.matching:
            note(t("No dead letter matches."))
        if plan.outcomes.get("SENT_BEFORE"):
            text = t(
                "{count} were sent before and are left out.",
                count=count(plan.outcomes["SENT_BEFORE"]),
            )
            note(text)
        if plan.examined < plan.in_range:
            text = t(
                "This is a look at the first {examined} of {total} dead letters; the job does all.",
                examined=count(plan.examined),
                total=count(plan.in_range),
            )
            note(text, kind="warning", icon="warning_amber")
        columns = [
            Column(name="outcome", label=t("Outcome"), kind="badge"),
            Column(name="message", label=t("Message"), kind="code"),
            Column(name="target", label=t("Topic")),
            Column(name="detail", label=t("Detail")),
        ]
        rows = [
            {
                "key": each.position,
                "outcome": outcome_text(view, each.outcome),
                "outcome_tone": "info" if each.outcome == "PLANNED" else outcome_tone(each.outcome),
                "message": each.message_id,
                "target": each.target or "—",
                "detail": each.detail,
            }
            for each in plan.letters[:8]
        ]
        if rows:
            simple_table(columns, rows, label=t("What would become of each"))
        if plan.matching > len(rows):
            ui.label(t("and {count} more", count=count(plan.matching - len(rows))))

    async def _submit(self) -> None:
        view = self._view
        try:
            job: JobView = await view.run_confirmed(
                self._token, redrive_dead_letters, **self._arguments()
            )
        except ConfirmationNeeded:
            await self._load()
            raise EffectChanged(view) from None
        view.open(f"/jobs/{job.id}")


def _properties(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise BadInput("properties", f"{line!r} is not name=value")
        found[name.strip()] = value
    return found
