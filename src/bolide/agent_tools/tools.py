"""Tools of the Model Context Protocol, made of operations: names, schemas, arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

import pydantic
from mcp_types import Tool, ToolAnnotations

from bolide.operations.declaration import Operation, Role
from bolide.operations.descriptions import dataclasses_in, describe_fields, split_docstring
from bolide.operations.errors import BadInput

CONFIRMATION = "confirmation"
"""The parameter that an operation with a preview has in addition."""
RESULT = "result"
"""The field of a result that is no object by itself."""

_CONFIRMATION_SCHEMA = {
    "type": "string",
    "description": "Leave it out at first: the answer then shows what would be done, changes"
    " nothing, and has the token to give here.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTool:
    """An operation under the name that agents call it by."""

    name: str
    operation: Operation[Any, Any]
    arguments: type[pydantic.BaseModel]
    """Checks what is given, and has the field names of the operation's parameters."""
    tool: Tool = field(repr=False)

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the operation, those left out with their defaults.

        Raises:
            BadInput: one is missing, unknown or has the wrong type.
        """
        try:
            parsed = self.arguments.model_validate(dict(given))
        except pydantic.ValidationError as exc:
            error = exc.errors(include_url=False, include_input=False)[0]
            raise BadInput(".".join(map(str, error["loc"])), self._reason(error)) from None
        return {name: getattr(parsed, name) for name in self.arguments.model_fields}

    def _reason(self, error: Any) -> str:
        known = ", ".join(self.arguments.model_fields) or "none"
        match error["type"]:
            case "missing":
                return f"is missing; the parameters are {known}"
            case "extra_forbidden":
                return f"there is no such parameter; there are {known}"
            case _:
                return str(error["msg"])


def make_tools(
    operations: Iterable[Operation[Any, Any]], *, role: Role, allow_writes: bool
) -> dict[str, OperationTool]:
    """The tools for a role, by name."""
    allowed = [
        each for each in operations if each.role <= role and (allow_writes or not each.changes)
    ]
    return {
        name: _make_tool(name, operation)
        for name, operation in sorted(name_operations(allowed).items())
    }


def name_operations(
    operations: Iterable[Operation[Any, Any]],
) -> dict[str, Operation[Any, Any]]:
    """Names such as `topics_list`, of topics.list_topics; `consumers_reset_offsets` stays.

    The name says the subject once, unless that would leave two operations with one name.
    """
    short: dict[str, list[Operation[Any, Any]]] = {}
    for operation in operations:
        short.setdefault(_short_name(operation), []).append(operation)
    return {
        name if len(same) == 1 else each.name.replace(".", "_"): each
        for name, same in short.items()
        for each in same
    }


def _short_name(operation: Operation[Any, Any]) -> str:
    """The subject is left out where it stands for itself: `list_name_servers` is not of servers."""
    module, _, function = operation.name.partition(".")
    verb, _, rest = function.partition("_")
    for subject in (module, module.removesuffix("s")):
        if function.startswith(f"{subject}_"):
            return f"{module}_{function.removeprefix(f'{subject}_')}"
        if rest == subject:
            return f"{module}_{verb}"
        if rest.startswith(f"{subject}_"):
            return f"{module}_{verb}_{rest.removeprefix(f'{subject}_')}"
    return f"{module}_{function}"


def _make_tool(name: str, operation: Operation[Any, Any]) -> OperationTool:
    text, described = split_docstring(operation.function)
    arguments = _arguments_model(name, operation.parameters, described)
    schema = _tidy(
        arguments.model_json_schema(), [each.annotation for each in operation.parameters]
    )
    schema.setdefault("properties", {})
    if operation.preview is not None:
        schema["properties"][CONFIRMATION] = _CONFIRMATION_SCHEMA
        text += "\n\nShows its effect first, and is run when that is confirmed."
    tool = Tool(
        name=name,
        title=operation.summary.rstrip("."),
        description=text,
        input_schema=schema,
        output_schema=_output_schema(operation),
        annotations=ToolAnnotations(
            read_only_hint=not operation.changes,
            destructive_hint=operation.changes and _destroys(operation),
            idempotent_hint=operation.method in {"GET", "PUT", "DELETE"},
            open_world_hint=False,
        ),
    )
    return OperationTool(name=name, operation=operation, arguments=arguments, tool=tool)


def _destroys(operation: Operation[Any, Any]) -> bool:
    return operation.preview is not None or operation.method == "DELETE"


def _arguments_model(
    name: str, parameters: Iterable[Parameter], described: Mapping[str, str]
) -> type[pydantic.BaseModel]:
    fields: dict[str, Any] = {}
    for each in parameters:
        default = ... if each.default is Parameter.empty else each.default
        fields[each.name] = (
            each.annotation,
            pydantic.Field(default, description=described.get(each.name)),
        )
    model: type[pydantic.BaseModel] = pydantic.create_model(
        name, __config__=pydantic.ConfigDict(extra="forbid", protected_namespaces=()), **fields
    )
    return model


def _output_schema(operation: Operation[Any, Any]) -> dict[str, Any] | None:
    """None for what may answer with its effect instead of its result."""
    if operation.preview is not None:
        return None
    annotation = signature(operation.function, eval_str=True).return_annotation
    schema = pydantic.TypeAdapter(annotation).json_schema(mode="serialization")
    schema = _tidy(schema, [annotation])
    if schema.get("type") == "object":
        return schema
    definitions = schema.pop("$defs", None)
    wrapped = {"type": "object", "properties": {RESULT: schema}, "required": [RESULT]}
    return wrapped | ({"$defs": definitions} if definitions else {})


def _tidy(schema: dict[str, Any], annotations: Iterable[Any]) -> dict[str, Any]:
    """Without titles that repeat names, and with what the source says of fields."""
    kinds: dict[str, type] = {}
    for annotation in annotations:
        kinds |= dataclasses_in(annotation)
    for each in [schema, *schema.get("$defs", {}).values()]:
        kind = kinds.get(each.get("title", "").partition("[")[0])
        texts = describe_fields(kind) if kind is not None else {}
        for name, inner in each.get("properties", {}).items():
            if name in texts:
                inner.setdefault("description", texts[name])
    tidied: dict[str, Any] = _without_titles(schema)
    return tidied


def _without_titles(schema: Any) -> Any:
    """A title beside a type is a title; `properties` has names of fields instead."""
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(inner) for name, inner in value.items()}
        if key in {"properties", "$defs"}
        else _without_titles(value)
        for key, value in schema.items()
        if key != "title"
    }
