"""The one door: every operation, from a page, the HTTP API or MCP, is run by `Door.run`.

It checks the role, wants a confirmation of what destroys or moves something, and writes changes to
the audit log with what was there before and after.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields, is_dataclass
from inspect import signature
from typing import Any, ParamSpec, Protocol, TypeVar

from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Operation, Preview, Role
from bolide.operations.errors import ConfirmationNeeded, RoleTooLow
from bolide.operations.views import reason_of

P = ParamSpec("P")
T = TypeVar("T")

CONFIRMED = "yes"
"""Confirms without a look at the effect, as `--yes` does on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who runs an operation, and from where."""

    name: str
    role: Role
    source: str
    """console, api or mcp, with the address of the client if it has one, and whether the name is
    that of a user of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A change that was made, or was tried."""

    caller: Caller
    operation: str
    target: str
    arguments: Mapping[str, object]
    before: object = None
    after: object = None
    error: str = ""


class AuditLog(Protocol):
    """Keeps what the door writes."""

    async def write(self, entry: AuditEntry) -> None: ...


class Door:
    """Runs operations for callers."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def run(
        self,
        operation: Operation[P, T],
        cluster: Cluster,
        caller: Caller,
        arguments: Mapping[str, Any],
        *,
        confirmation: str | None = None,
    ) -> T:
        """Run an operation.

        Args:
            operation: what to run.
            cluster: on what.
            caller: for whom.
            arguments: the parameters of the operation.
            confirmation: the token of the effect that the caller agreed to, or `CONFIRMED`.

        Raises:
            RoleTooLow: the caller may not run it.
            ConfirmationNeeded: it has an effect that is not confirmed yet.
            BolideError: it failed; the audit log tells of it.
        """
        if caller.role < operation.role:
            raise RoleTooLow(operation.name, operation.role.label, caller.role.label)
        if not operation.changes:
            return await _call(operation, cluster, arguments)
        await _confirm(operation, cluster, arguments, confirmation)
        before = await _state(operation, cluster, arguments)
        try:
            result = await _call(operation, cluster, arguments)
        except BolideError as error:
            await self._write(operation, caller, arguments, before=before, error=reason_of(error))
            raise
        except BaseException as error:  # cancelled amid the change, or a defect: it may be done
            reason = f"interrupted: {type(error).__name__}"
            await self._write(operation, caller, arguments, before=before, error=reason)
            raise
        cluster.forget()
        after = await _state(operation, cluster, arguments) if operation.state else result
        await self._write(operation, caller, arguments, before=before, after=after)
        return result

    async def preview(
        self,
        operation: Operation[Any, Any],
        cluster: Cluster,
        caller: Caller,
        arguments: Mapping[str, Any],
    ) -> tuple[object, str]:
        """What an operation would do, and the token that confirms just that."""
        if caller.role < operation.role:
            raise RoleTooLow(operation.name, operation.role.label, caller.role.label)
        if operation.preview is None:
            return None, CONFIRMED
        effect = await _call_with_known(operation.preview, cluster, arguments)
        return effect, _token(operation, arguments, effect)

    async def _write(
        self,
        operation: Operation[Any, Any],
        caller: Caller,
        arguments: Mapping[str, Any],
        *,
        before: object = None,
        after: object = None,
        error: str = "",
    ) -> None:
        open_arguments = {
            name: "***" if name in operation.secret else value for name, value in arguments.items()
        }
        await self._audit.write(
            AuditEntry(
                caller=caller,
                operation=operation.name,
                target=operation.describe_target(open_arguments),
                arguments=open_arguments,
                before=before,
                after=after,
                error=error,
            )
        )


async def _call(operation: Operation[P, T], cluster: Cluster, arguments: Mapping[str, Any]) -> T:
    function: Any = operation.function
    result: T = await function(cluster, **arguments)
    return result


async def _call_with_known(
    function: Preview, cluster: Cluster, arguments: Mapping[str, Any]
) -> object:
    """Call with the parameters that the function has; others belong to the operation alone."""
    known = signature(function).parameters
    return await function(cluster, **{k: v for k, v in arguments.items() if k in known})


async def _state(
    operation: Operation[Any, Any], cluster: Cluster, arguments: Mapping[str, Any]
) -> object:
    if operation.state is None:
        return None
    try:
        return await _call_with_known(operation.state, cluster, arguments)
    except BolideError as error:
        return {"unknown": reason_of(error)}


async def _confirm(
    operation: Operation[Any, Any],
    cluster: Cluster,
    arguments: Mapping[str, Any],
    confirmation: str | None,
) -> None:
    if operation.preview is None or confirmation == CONFIRMED:
        return
    effect = await _call_with_known(operation.preview, cluster, arguments)
    token = _token(operation, arguments, effect)
    if confirmation != token:
        raise ConfirmationNeeded(operation.name, effect, token)


def _token(operation: Operation[Any, Any], arguments: Mapping[str, Any], effect: object) -> str:
    agreed = [operation.name, arguments, _lasting(effect)]
    text = json.dumps(agreed, default=plain, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _lasting(value: object) -> object:
    """An effect without the figures that change by themselves; see `LIVE`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _lasting_field(value, each) for each in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_lasting(each) for each in value]
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items()}
    return value


def _lasting_field(value: object, field: Field[Any]) -> object:
    """Of a live figure only whether there is anything."""
    figure = getattr(value, field.name)
    return bool(figure) if "live" in field.metadata else _lasting(figure)


def plain(value: object) -> object:
    """For `json.dumps`: views become objects, the rest their text."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)
