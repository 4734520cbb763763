"""A command for each built-in pipeline, made of its options, and one for files."""

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bolide.cli import pipeline_options as opt
from bolide.cli.pipeline_group import FILE
from bolide.cli.pipeline_run import Words, explain_work, run_work
from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import BUILT_INS, BuiltIn, RunSettings, make_options
from bolide.spark.pipelines.work import Job, Pipeline

Make = Callable[[RunSettings], Pipeline | Job]
Carry = Callable[[Make, Words], None]

_CARRY: dict[str, Carry] = {"run": run_work, "explain": explain_work}
_FILE_TEXT = "A pipeline of your own, declared in a YAML file."
_FILE_EXAMPLE = "orders.yaml --once"


def load(verb: str) -> dict[str, Any]:
    """All commands, as a group has them."""
    app = typer.Typer(rich_markup_mode=None)
    for name, entry in BUILT_INS.entries.items():
        built_in = BUILT_INS[name]
        app.command(
            name,
            help=built_in.text,
            short_help=entry.summary,
            epilog=_example(verb, name, built_in.example),
        )(_command(built_in, verb))
    app.command(FILE, help=_FILE_TEXT, epilog=_example(verb, "", _FILE_EXAMPLE))(_file(verb))
    return dict(typer.main.get_group(app).commands)


def _example(verb: str, name: str, words: str) -> str:
    # The first sign keeps the line from being wrapped.
    return "\b\nExample: " + " ".join(filter(None, ("bolide pipeline", verb, name, words)))


def _command(built_in: BuiltIn, verb: str) -> Callable[..., None]:
    own = list(_own_parameters(built_in.options))
    names = {parameter.name for parameter in own}

    def call(**values: Any) -> None:
        words = {name: values.pop(name) for name in names}
        given = {name: _value(value) for name, value in words.items() if value is not None}
        _CARRY[verb](lambda run: built_in.plan(make_options(built_in, given), run), Words(**values))

    return _with_parameters(call, [*own, *_common(verb)])


def _file(verb: str) -> Callable[..., None]:
    def call(file: Any, **values: Any) -> None:
        from bolide.spark.pipelines.declared import read_pipeline  # noqa: PLC0415

        _CARRY[verb](lambda run: read_pipeline(_existing(file), run), Words(**values))

    argument = inspect.Parameter("file", inspect.Parameter.KEYWORD_ONLY, annotation=opt.File)
    return _with_parameters(call, [argument, *_common(verb)])


def _existing(file: Path) -> Path:
    """Raises ConfigError; a word that nearly is the name of a built-in gets that told."""
    if not file.exists():
        near = difflib.get_close_matches(str(file), BUILT_INS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BUILT_INS)}"
        raise ConfigError(f"{str(file)!r} is neither a file nor a built-in pipeline; {hint}")
    return file


# Parameters


def _own_parameters(options: type[Any]) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(options)
    for item in dataclasses.fields(options):
        given = item.default is not dataclasses.MISSING
        kind, default = _plain(hints[item.name]), item.default
        if kind == list[str]:
            kind, default = list[str] | None, None
        yield inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default if given else inspect.Parameter.empty,
            annotation=Annotated[kind, _option(item)],
        )


def _option(item: "dataclasses.Field[Any]") -> Any:
    word = f"--{item.name.replace('_', '-')}"
    declared = f"{word}/--no-{word.removeprefix('--')}" if item.default is True else word
    facts = item.metadata
    return typer.Option(
        declared, help=facts["doc"], min=facts["low"], max=facts["high"], metavar=facts["metavar"]
    )


def _plain(hint: Any) -> Any:
    """The type as typer knows it: a tuple of texts is a list."""
    return list[str] if typing.get_origin(hint) is tuple else hint


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _common(verb: str) -> list[inspect.Parameter]:
    """What every command of the verb takes: the fields of `Words`, as far as they concern it."""
    hints = typing.get_type_hints(Words, include_extras=True)
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=item.default,
            annotation=hints[item.name],
        )
        for item in dataclasses.fields(Words)
        if verb in item.metadata.get("verbs", (verb,))
    ]


def _with_parameters(
    call: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
