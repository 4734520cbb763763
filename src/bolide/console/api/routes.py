"""One route for each operation: its path, parameters and answer come from its declaration."""

from inspect import Parameter, Signature
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import BaseModel, Field

from bolide.console.access.sessions import Session
from bolide.console.service import Console
from bolide.operations.declaration import Operation
from bolide.operations.errors import BadInput

_CONFIRMATION = Parameter(
    "confirmation",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        Query(
            description="The token of the effect that you agree to, from the answer 428 of a call"
            " without it; or yes, to agree without a look."
        ),
    ],
)
_DRY_RUN = Parameter(
    "dry_run",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, Query(description="Only answer 428 with the effect.")],
)


class ErrorAnswer(BaseModel):
    """What went wrong."""

    error: str = Field(description="The kind of error.")
    message: str = Field(description="What happened, and what to do.")
    code: int | None = Field(None, description="RocketMQ's response code, from a server.")


class EffectAnswer(ErrorAnswer):
    """What the call would do; repeat it with `confirmation`."""

    effect: Any
    confirmation: str


_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorAnswer, "description": "Not logged in."},
    403: {"model": ErrorAnswer, "description": "The role, or the cluster, does not allow it."},
    503: {"model": ErrorAnswer, "description": "No server answered."},
}
_NEEDS_EFFECT: dict[int | str, dict[str, Any]] = {
    428: {"model": EffectAnswer, "description": "Confirm the effect."}
}


def operation_router(console: Console, operations: list[Operation[Any, Any]]) -> APIRouter:
    """The routes of these operations, the more specific paths first."""
    router = APIRouter()
    for operation in sorted(operations, key=lambda each: (each.path.count("{"), each.path)):
        _add(router, console, operation)
    return router


def _add(router: APIRouter, console: Console, operation: Operation[Any, Any]) -> None:
    async def endpoint(request: Request, **arguments: Any) -> Any:
        await _refuse_unknown(request, operation, known)
        confirmation = arguments.pop("confirmation", None)
        dry_run = arguments.pop("dry_run", False)
        session: Session = request.state.session
        return await console.run(
            session,
            operation,
            arguments,
            source=f"api {client_address(request)}",
            confirmation="" if dry_run else confirmation,
        )

    known = {parameter.name for parameter in operation.parameters}
    extra = [_CONFIRMATION, _DRY_RUN] if operation.preview else []
    own = [_with_place(operation, parameter) for parameter in operation.parameters]
    request = Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request)
    endpoint.__signature__ = Signature([request, *own, *extra])  # type: ignore[attr-defined]
    noun = operation.name.partition(".")[0]
    router.add_api_route(
        operation.path,
        endpoint,
        methods=[operation.method],
        name=operation.name,
        operation_id=operation.name.replace(".", "_"),
        summary=operation.summary.rstrip("."),
        description=f"{operation.description}\n\nNeeds the role `{operation.role.label}`.",
        tags=[noun.replace("_", " ")],
        response_model=get_type_hints(operation.function).get("return"),
        responses=_ERRORS | (_NEEDS_EFFECT if operation.preview else {}),
    )


async def _refuse_unknown(
    request: Request, operation: Operation[Any, Any], known: set[str]
) -> None:
    """A misspelt parameter would otherwise be ignored, and the call do something else.

    Raises:
        BadInput: the operation has no such parameter.
    """
    given = set(request.query_params) - {"confirmation", "dry_run"}
    if operation.method not in {"GET", "DELETE"} and await request.body():
        body = await request.json()
        given |= set(body) if isinstance(body, dict) else set()
    if unknown := sorted(given - known):
        names = ", ".join(sorted(known)) or "none"
        raise BadInput(unknown[0], f"there is no such parameter; this has {names}")


def _with_place(operation: Operation[Any, Any], parameter: Parameter) -> Parameter:
    """A parameter of the path, of the query or of the JSON body."""
    place: Any
    if f"{{{parameter.name}}}" in operation.path:
        place = Path()
    elif operation.method in {"GET", "DELETE"}:
        place = Query()
    else:
        place = Body(embed=True)
    return parameter.replace(
        kind=Parameter.KEYWORD_ONLY, annotation=Annotated[parameter.annotation, place]
    )


def client_address(request: Request) -> str:
    return request.client.host if request.client else ""
