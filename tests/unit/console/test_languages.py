"""Every text of the pages has its Chinese one, with the same fields, and there are no others."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from bolide import console
from bolide.console.languages import Language, chinese_texts, preferred_language, translator
from bolide.console.pages.all_pages import PAGES
from bolide.console.pages.declaration import Section
from bolide.operations.declaration import Role

SOURCES = Path(console.__file__).parent
NAMES = {"t", "_t"}


def literals(file: Path) -> Iterator[str]:
    """The texts that a module passes to `t`; whatever is not a literal is named in its place."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else None
        if name is None and isinstance(node.func, ast.Name):
            name = node.func.id
        if name in NAMES:
            yield from _texts(node.args[0])


def _texts(argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.IfExp):
        yield from _texts(argument.body)
        yield from _texts(argument.orelse)


def used_texts() -> set[str]:
    used = {text for file in SOURCES.rglob("*.py") for text in literals(file)}
    used |= {page.title for page in PAGES.values()}
    used |= {section.value for section in Section} | {role.label for role in Role}
    return used


def test_every_text_is_translated() -> None:
    assert sorted(used_texts() - set(chinese_texts())) == []


def test_translations_have_the_fields_of_their_texts() -> None:
    def fields(text: str) -> set[str]:
        return {name for _, name, _, _ in Formatter().parse(text) if name is not None}

    assert [text for text, other in chinese_texts().items() if fields(text) != fields(other)] == []


def test_the_same_text_is_translated_in_one_way() -> None:
    found: dict[str, set[str]] = {}
    for file in (SOURCES / "languages" / "zh").glob("*.json"):
        for text, other in json.loads(file.read_text("utf-8")).items():
            found.setdefault(text, set()).add(other)
    assert {text: ways for text, ways in found.items() if len(ways) > 1} == {}


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "", Language.ENGLISH),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", Language.CHINESE),
        (None, "de,en;q=0.8,zh;q=0.7", Language.ENGLISH),
        ("zh-CN", "en", Language.CHINESE),
        ("<script>", "zh", Language.CHINESE),
    ],
)
def test_the_language_is_the_chosen_or_the_preferred_one(
    chosen: str | None, accepted: str, language: Language
) -> None:
    assert preferred_language(chosen, accepted) is language


def test_values_are_put_into_their_fields() -> None:
    assert translator(Language.ENGLISH)("{count} topics", count=3) == "3 topics"
    assert "7" in translator(Language.CHINESE)("and {count} more", count=7)
    assert translator(Language.ENGLISH)("{not} formatted") == "{not} formatted"


def test_every_page_is_declared() -> None:
    builders = {
        file.relative_to(SOURCES.parent.parent).with_suffix("").as_posix().replace("/", ".")
        for file in (SOURCES / "pages").rglob("*.py")
        if "\n@page(" in file.read_text("utf-8")
    }
    assert {page.build.__module__ for page in PAGES.values()} == builders
