"""Changes to users and accounts after which nobody may manage a cluster any more."""

from collections.abc import Iterator, Mapping

from bolide.admin.declared.fields import POLICIES, Fields, Kind
from bolide.auth.policies.model import UserStatus, UserType

_NOT_UNDONE = "no later command of it could undo that"


def access_losses(
    kind: Kind, before: Mapping[str, Fields], changed: Mapping[str, Fields], own: str | None
) -> Iterator[tuple[str, str]]:
    """Whom changes at one broker lock out, by name, and what becomes of them.

    Args:
        before: all users or accounts of the broker.
        changed: those that change, as they are to be.
        own: who makes the changes.
    """
    if loss := own_loss(kind, before, changed, own):
        yield own or "", f"signs this command, and {loss}: {_NOT_UNDONE}"
    had = [name for name, fields in before.items() if _is_in_charge(kind, fields)]
    left = any(_is_in_charge(kind, fields) for fields in {**before, **changed}.values())
    if had and not left:
        whom = "super user" if kind is Kind.USERS else "administrator"
        for name in had:
            yield name, f"is the last {whom} that is enabled: nobody could manage the broker"


def own_loss(
    kind: Kind, before: Mapping[str, Fields], changed: Mapping[str, Fields], own: str | None
) -> str | None:
    """What who makes the changes loses at one broker; None if it stays in charge, or never was."""
    if own is None or own not in before or own not in changed:
        return None
    old, new = before[own], changed[own]
    if kind is Kind.ACCOUNTS:
        return "is to be no administrator" if old["admin"] and not new["admin"] else None
    if _is_enabled(old) and not _is_enabled(new):
        return "is to be disabled"
    return "is to be no super user" if _is_super(old) and not _is_super(new) else None


def gets_other_policies(
    before: Mapping[str, Fields], changed: Mapping[str, Fields], own: str | None
) -> bool:
    """Whether who makes the changes is a user who needs policies, and gets others."""
    if own is None or own not in before or own not in changed:
        return False
    return not _is_super(changed[own]) and before[own][POLICIES] != changed[own][POLICIES]


def _is_in_charge(kind: Kind, fields: Fields) -> bool:
    if kind is Kind.ACCOUNTS:
        return bool(fields["admin"])
    return _is_super(fields) and _is_enabled(fields)


def _is_super(fields: Fields) -> bool:
    return bool(fields["type"] == UserType.SUPER.value)


def _is_enabled(fields: Fields) -> bool:
    return bool(fields["status"] == UserStatus.ENABLE.value)
