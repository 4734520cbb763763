"""What topics, their kinds and their settings are called on the pages, and where they are."""

from urllib.parse import quote

from bolide.console.ui import formats
from bolide.console.ui.view import View
from bolide.operations.topics.table import MESSAGE_TYPE, TopicKind, TopicPermission

_TONES = {
    TopicKind.FIFO: "info",
    TopicKind.DELAY: "info",
    TopicKind.TRANSACTION: "info",
    TopicKind.PRIORITY: "info",
    TopicKind.RETRY: "warning",
    TopicKind.DEAD_LETTER: "danger",
    TopicKind.PARKED: "warning",
}


def topic_path(topic: str) -> str:
    """The path of the page of a topic."""
    return f"/topics/{quote(topic, safe='')}"


def kind_name(view: View, kind: TopicKind) -> str:
    """What people call a kind of topic."""
    t = view.t
    return {
        TopicKind.NORMAL: t("Normal"),
        TopicKind.FIFO: t("FIFO"),
        TopicKind.DELAY: t("Delayed"),
        TopicKind.TRANSACTION: t("Transaction"),
        TopicKind.PRIORITY: t("Priority"),
        TopicKind.MIXED: t("Mixed"),
        TopicKind.LITE: t("Lite"),
        TopicKind.UNSPECIFIED: t("Unspecified"),
        TopicKind.RETRY: t("Retry"),
        TopicKind.DEAD_LETTER: t("Dead letters"),
        TopicKind.PARKED: t("Parked keys"),
        TopicKind.SYSTEM: t("System"),
    }[kind]


def permission_name(view: View, permission: TopicPermission | None) -> str:
    """What clients may do with a topic; a dash if it is unknown."""
    t = view.t
    if permission is None:
        return formats.UNKNOWN
    return {
        TopicPermission.READ_WRITE: t("Read/write"),
        TopicPermission.READ: t("Read only"),
        TopicPermission.WRITE: t("Write only"),
        TopicPermission.NONE: t("No access"),
        TopicPermission.DIFFERS: t("Inconsistent"),
    }[permission]


def permission_tone(permission: TopicPermission | None) -> str:
    if permission in {None, TopicPermission.READ_WRITE}:
        return "quiet"
    return "danger" if permission is TopicPermission.NONE else "warning"


def kind_tone(kind: TopicKind) -> str:
    return _TONES.get(kind, "quiet")


def setting_name(view: View, setting: str) -> str:
    """What people call a setting; attributes keep their names."""
    t = view.t
    names = {
        "read_queues": t("Read queues"),
        "write_queues": t("Write queues"),
        "permission": t("Permission"),
        "order": t("Fixed order"),
        "filter_type": t("Filter type"),
        "system_flag": t("System flag"),
        "attributes": t("Attributes"),
        MESSAGE_TYPE: t("Message type"),
    }
    return names.get(setting, setting)


def setting_text(view: View, setting: str, value: str | None) -> str:
    t = view.t
    if value is None:
        return t("not set")
    if setting == "permission":
        return permission_name(view, TopicPermission(value))
    if setting == "order":
        return t("yes") if value == "true" else t("no")
    return value
