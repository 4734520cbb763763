"""Words for consumer groups that several pages use."""

from bolide.console.ui import formats
from bolide.console.ui.view import View
from bolide.operations.consumers.figures import ConsumerKind, ConsumerModel
from bolide.operations.consumers.listing import GroupRow
from bolide.operations.consumers.warnings import GroupWarning, WarningKind

_SERIOUS = {WarningKind.SUBSCRIPTIONS_DIFFER, WarningKind.STALLED}
_NEUTRAL = {WarningKind.NO_SETTINGS, WarningKind.FORBIDDEN_TOPIC, WarningKind.SETTINGS_DIFFER}


def kind_text(view: View, group: GroupRow) -> str:
    """Such as "push · clustering · ordered"; unknown without members."""
    t = view.t
    kinds = {
        ConsumerKind.PUSH: t("push"),
        ConsumerKind.PULL: t("pull"),
        ConsumerKind.POP: t("pop"),
    }
    models = {
        ConsumerModel.CLUSTERING: t("clustering"),
        ConsumerModel.BROADCASTING: t("broadcasting"),
        ConsumerModel.LITE: t("lite"),
    }
    parts = [
        kinds[group.kind] if group.kind else "",
        models[group.model] if group.model else "",
        t("ordered") if group.is_ordered else "",
    ]
    return " · ".join(part for part in parts if part) or formats.UNKNOWN


def warning_note(view: View, warning: GroupWarning) -> str:
    """What is wrong, with names and figures."""
    figures = formats.count(warning.count) if warning.count is not None else ""
    about = ": ".join(part for part in (warning.subject, figures) if part)
    text = warning_text(view, warning)
    return f"{text}: {about}" if about else text


def warning_text(view: View, warning: GroupWarning) -> str:
    """What is wrong, in the language of the page."""
    t = view.t
    texts = {
        WarningKind.PAUSED: t("Paused"),
        WarningKind.PARTLY_PAUSED: t("Paused on some brokers"),
        WarningKind.FORBIDDEN_TOPIC: t("A topic is forbidden"),
        WarningKind.SETTINGS_DIFFER: t("Brokers have different settings"),
        WarningKind.NO_SETTINGS: t("No settings"),
        WarningKind.OFFLINE_WITH_LAG: t("Offline with a backlog"),
        WarningKind.DEAD_LETTERS: t("Dead letters"),
        WarningKind.SUBSCRIPTIONS_DIFFER: t("Subscriptions differ"),
        WarningKind.STALLED: t("Queue is stuck"),
    }
    return texts[warning.kind]


def warning_tone(warning: GroupWarning) -> str:
    if warning.kind in _SERIOUS:
        return "danger"
    return "info" if warning.kind in _NEUTRAL else "warning"


def state_cell(view: View, group: GroupRow) -> tuple[str, str, str]:
    """Text, tone and tooltip of the state of a group."""
    t = view.t
    if group.warnings:
        first, *others = group.warnings
        more = f" +{len(others)}" if others else ""
        hint = "; ".join(warning_note(view, each) for each in group.warnings)
        return warning_text(view, first) + more, warning_tone(first), hint
    if group.clients is None:
        return t("Unknown"), "quiet", ""
    return (t("Online"), "good", "") if group.clients else (t("Offline"), "quiet", "")
