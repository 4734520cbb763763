"""A body in the page: as a tree, as text, and byte by byte. Nothing in it is run or obeyed."""

import base64
from typing import Any

import msgspec
from nicegui import ui

from bolide.console.ui.formats import size
from bolide.console.ui.panels import note
from bolide.console.ui.view import View
from bolide.operations.messages.bodies import printable
from bolide.operations.messages.views import Body, BodyKind

_MAX_NODES = 2000
_MAX_DEPTH = 40
_LONGEST_VALUE = 300


def body_view(view: View, body: Body) -> None:
    """The body with a choice of how it is shown."""
    t = view.t
    kinds = {
        BodyKind.EMPTY: t("empty"),
        BodyKind.JSON: "JSON",
        BodyKind.TEXT: t("text"),
        BodyKind.BINARY: t("binary"),
    }
    facts = [kinds[body.kind], size(body.size)]
    if body.compression:
        facts.append(t("stored with {codec}", codec=body.compression))
    ui.label(" · ".join(facts)).classes("page-subtitle")
    if body.problem:
        note(t("The body cannot be decompressed; it is shown as it is stored."), kind="warning")
    if body.is_cut:
        shown = size(len(base64.b64decode(body.base64)))
        text = t("Only the first {shown} are shown; the download has all.", shown=shown)
        note(text, kind="info")
    if body.kind is BodyKind.EMPTY:
        return
    _shapes(view, body)


def _shapes(view: View, body: Body) -> None:
    t = view.t
    document = _document(body)
    shapes = {"text": t("Text"), "hex": t("Hex"), "base64": "Base64"}
    if document is not None:
        shapes = {"tree": t("Tree"), "json": "JSON", **shapes}
    if body.text is None:
        del shapes["text"]
    place = ui.element("div").classes("body-place")

    def show(shape: str) -> None:
        place.clear()
        with place:
            if shape == "tree":
                _tree(view, document)
            else:
                _text(view, _as_text(body, shape, document))

    first = next(iter(shapes))
    toggle = ui.toggle(shapes, value=first, on_change=lambda event: show(event.value))
    toggle.props("no-caps dense unelevated").classes("body-shapes")
    toggle.props["aria-label"] = t("How the body is shown")
    toggle.move(target_index=place.parent_slot.children.index(place) if place.parent_slot else 0)
    show(first)


def _as_text(body: Body, shape: str, document: object) -> str:
    if shape == "hex":
        return body.hex_dump
    if shape == "base64":
        return body.base64
    if shape == "json":
        indented = msgspec.json.format(msgspec.json.encode(document), indent=2)
        return printable(indented.decode())
    return printable(body.text or "")


def _text(view: View, text: str) -> None:
    label = ui.label(text).classes("body-text")
    label.props("tabindex=0 role=region")
    label.tag = "pre"
    label.props["aria-label"] = view.t("Body of the message")


def _document(body: Body) -> object | None:
    """The JSON in a body that is shown whole; None for anything else."""
    if body.kind is not BodyKind.JSON or body.is_cut or body.text is None:
        return None
    try:
        document: object = msgspec.json.decode(body.text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return document


def _tree(view: View, document: object) -> None:
    left = [_MAX_NODES]
    nodes = _nodes(document, "$", 0, left)
    tree = ui.tree(nodes, node_key="id", label_key="label").classes("mono json-tree")
    tree.props("dense no-transition")
    tree.props["aria-label"] = view.t("Body of the message")
    tree.expand([each["id"] for each in nodes])
    if left[0] <= 0:
        note(view.t("The tree has more parts than are shown; the text has all."))


def _nodes(value: object, path: str, depth: int, left: list[int]) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        items = [(str(name), each) for name, each in value.items()]
    elif isinstance(value, list):
        items = [(str(number), each) for number, each in enumerate(value)]
    else:
        return [{"id": path, "label": _short(value)}]
    nodes = []
    for number, (name, each) in enumerate(items):
        left[0] -= 1
        if left[0] <= 0 or depth >= _MAX_DEPTH:
            break
        own = f"{path}/{number}"
        shown = printable(name)[:_LONGEST_VALUE]
        if isinstance(each, dict | list) and each:
            kind = f"{{{len(each)}}}" if isinstance(each, dict) else f"[{len(each)}]"
            children = _nodes(each, own, depth + 1, left)
            nodes.append({"id": own, "label": f"{shown} {kind}", "children": children})
        else:
            nodes.append({"id": own, "label": f"{shown}: {_short(each)}"})
    return nodes


def _short(value: object) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (ValueError, OverflowError, UnicodeError):
        text = repr(value)
    text = printable(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
