"""Fixtures of the integration tests."""

from tests.support.aio import each_loop
from tests.support.commands import home, started

__all__ = ["each_loop", "home", "started"]
