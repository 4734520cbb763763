"""On which threads something is done."""

import threading
from typing import Any

import pytest


def note_threads(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> list[threading.Thread]:
    """The threads on which a function of `owner` is called from now on, one for each call."""
    noted: list[threading.Thread] = []
    original = getattr(owner, name)

    def noting(*args: Any, **kwargs: Any) -> Any:
        noted.append(threading.current_thread())
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, noting)
    return noted
