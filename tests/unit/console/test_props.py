"""Texts of others never become properties, templates or addresses of elements."""

import ast
from pathlib import Path

import pytest
from nicegui import Client, ui
from nicegui.page import page

import bolide.console
from bolide.console.ui import tables
from bolide.console.ui.props import link_to, name_element

SOURCES = sorted(Path(bolide.console.__file__).parent.rglob("*.py"))
HOSTILE = 'x\\" onload="y" innerHTML=\'<img src=x onerror=alert(1)>\' \\'


def test_only_constant_texts_are_parsed_as_properties() -> None:
    calls = _calls("props")
    assert len(calls) > 100
    assert [place for place, call in calls if not _is_constant_call(call)] == []


def test_only_constant_texts_are_compiled_as_templates() -> None:
    """The template of a cell has the name of its column in it, which is a name of the code."""
    calls = _calls("add_slot")
    assert len(calls) > 5
    templates = [(place, template) for place, call in calls for template in call.args[1:]]
    assert [p for p, t in templates if not (_is_constant(t) or _is_template(t))] == []
    with pytest.raises(ValueError, match="name of the code"):
        tables._cell(tables.Column(name="a'}}", label=""))


def test_the_scan_finds_texts_that_are_not_constant() -> None:
    for text in ('x.props(f"a={b}")', "x.props(b)", 'x.props("a" + b)', 'x.props("a=%s" % b)'):
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert not _is_constant_call(call), text


def test_a_name_stays_a_name_and_a_link_at_home() -> None:
    with Client(page("/")):
        element = name_element(ui.element("div"), HOSTILE)
        assert dict(element.props) == {"aria-label": HOSTILE}
        assert link_to(ui.element("a"), "/topics/a%22b").props["href"] == "/topics/a%22b"
        for path in ("javascript:alert(1)", "//elsewhere", "/\\elsewhere", "https://elsewhere", ""):
            with pytest.raises(ValueError, match="not a path"):
                link_to(ui.element("a"), path)


def _calls(method: str) -> list[tuple[str, ast.Call]]:
    """Where a method of that name is called."""
    return [
        (f"{file}:{node.lineno}", node)
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
    ]


def _is_constant_call(call: ast.Call) -> bool:
    return all(_is_constant(each) for each in (*call.args, *(k.value for k in call.keywords)))


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_constant(node.body) and _is_constant(node.orelse)
    return isinstance(node, ast.Constant)


def _is_template(node: ast.expr) -> bool:
    """A constant of the module, or what `_cell` makes of one."""
    if isinstance(node, ast.Call):
        return ast.unparse(node) == "_cell(column)"
    return isinstance(node, ast.Name) and node.id.isupper()
