"""How an operation is declared: its role, its effect, and its place in the HTTP API."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from inspect import Parameter, cleandoc, signature
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from bolide.operations.cluster import Cluster

P = ParamSpec("P")
T = TypeVar("T")

_PACKAGE = "bolide.operations."

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Preview = Callable[..., Awaitable[object]]
"""Takes the parameters of its operation that it names; changes nothing."""


class Role(IntEnum):
    """Who may do what; each role may do what the ones before it may."""

    VIEWER = 1
    """Sees everything but secrets."""
    OPERATOR = 2
    """Changes topics, groups, offsets and messages."""
    ADMIN = 3
    """Changes settings, access control and the console's accounts."""

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[P, T]):
    """One thing to do with a cluster; call `door.run` for it, not the function."""

    function: Callable[Concatenate[Cluster, P], Awaitable[T]]
    method: Method
    path: str
    """Under `/api/v1`, with parameters in braces: `/topics/{topic}`."""
    role: Role
    target: str = ""
    """What the audit log calls the object; a format of the parameters: `topic {topic}`."""
    preview: Preview | None = None
    """What the operation would do; whoever runs it has to confirm what this returns."""
    state: Preview | None = None
    """Reads the object; the audit log has what it returns before and after."""
    secret: frozenset[str] = field(default_factory=frozenset)
    """Parameters that are never written to the audit log."""

    @property
    def name(self) -> str:
        """Such as `topics.create_topic`: the module or package, and the function."""
        module = self.function.__module__
        inner = module.removeprefix(_PACKAGE)
        noun = inner.partition(".")[0] if inner != module else module.rpartition(".")[2]
        return f"{noun}.{self.function.__name__}"

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def summary(self) -> str:
        """The first line of the function's documentation."""
        return self.description.partition("\n")[0]

    @property
    def description(self) -> str:
        return cleandoc(self.function.__doc__ or "")

    @property
    def parameters(self) -> list[Parameter]:
        """Those of the function, without the cluster."""
        return list(signature(self.function, eval_str=True).parameters.values())[1:]

    def describe_target(self, arguments: Mapping[str, object]) -> str:
        return self.target.format_map(_Plain(arguments))


class _Plain(dict[str, object]):
    """Arguments for a target's format; what was left out is an empty text."""

    def __missing__(self, key: str) -> str:
        return ""


OPERATIONS: dict[str, Operation[Any, Any]] = {}
"""All declared operations by name; `catalog` imports the modules that declare them."""


def read(
    path: str, *, role: Role = Role.VIEWER
) -> Callable[[Callable[Concatenate[Cluster, P], Awaitable[T]]], Operation[P, T]]:
    """Declare an operation that changes nothing."""
    return _declare(method="GET", path=path, role=role)


def change(  # noqa: PLR0913  a decorator with keyword options
    method: Method,
    path: str,
    *,
    target: str,
    role: Role = Role.OPERATOR,
    preview: Preview | None = None,
    state: Preview | None = None,
    secret: frozenset[str] = frozenset(),
) -> Callable[[Callable[Concatenate[Cluster, P], Awaitable[T]]], Operation[P, T]]:
    """Declare an operation that changes something; see `Operation` for the options."""
    return _declare(
        method=method,
        path=path,
        role=role,
        target=target,
        preview=preview,
        state=state,
        secret=secret,
    )


def _declare(
    **options: Any,
) -> Callable[[Callable[Concatenate[Cluster, P], Awaitable[T]]], Operation[P, T]]:
    def declare(function: Callable[Concatenate[Cluster, P], Awaitable[T]]) -> Operation[P, T]:
        operation = Operation(function=function, **options)
        OPERATIONS[operation.name] = operation
        return operation

    return declare
