"""Events of sockets: they need a valid session, and only what a user does is use."""

from collections.abc import Callable, Iterator
from time import time
from typing import Any

import pytest
from nicegui import Client, core, ui
from nicegui.page import page

from bolide.console.access.sessions import Session, Sessions
from bolide.console.web import sockets
from bolide.operations.declaration import Role

HANDLERS = ("event", "javascript_response", "ack", "log")


@pytest.fixture
def session() -> Session:
    sessions = Sessions(lifetime=3600, idle_limit=600)
    return sessions.start("eve", Role.VIEWER)[1]


@pytest.fixture
def client(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A page whose socket is `sid`."""
    made = Client(page("/"))
    sockets.bind_page(made, session)
    monkeypatch.setattr(core.sio, "rooms", lambda sid: [made.id] if sid == "sid" else [])
    yield made
    made.delete()


def _send(client: Client, name: str, sid: str = "sid", **message: Any) -> list[Any]:
    got: list[Any] = []
    handler: Callable[..., Any] = lambda _, given: got.append(given)  # noqa: E731
    checked = sockets._checked_event(handler, is_event=name == "event")
    checked(sid, {"client_id": client.id, **message})
    return got


def test_only_what_a_user_does_keeps_a_session(client: Client, session: Session) -> None:
    with client:
        button = ui.button("Go").on("click", lambda: None)
        table = ui.table(rows=[], pagination=5)
    kinds = {
        listener.type: {"id": element.id, "listener_id": listener.id}
        for element in (button, table)
        for listener in element._event_listeners.values()
    }

    def is_use(name: str, message: dict[str, Any]) -> bool:
        session.last_used = time() - 60
        assert _send(client, name, **message)
        return session.last_used > time() - 30

    assert is_use("event", kinds["click"])
    assert not is_use("event", kinds["update:pagination"])
    assert not is_use("event", {"id": button.id, "listener_id": "unknown"})
    assert not is_use("event", {"id": "nothing", "listener_id": None})
    for name in HANDLERS[1:]:
        assert not is_use(name, kinds["click"])


@pytest.mark.parametrize("name", HANDLERS)
def test_events_of_others_are_dropped(client: Client, session: Session, name: str) -> None:
    assert _send(client, name)
    assert not _send(client, name, sid="another socket")
    session.is_open = False
    assert not _send(client, name)
