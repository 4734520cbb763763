"""Fixtures of the integration tests."""

from tests.support.aio import each_loop

__all__ = ["each_loop"]
