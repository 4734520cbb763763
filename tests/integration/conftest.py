"""Fixtures of the integration tests."""

from tests.support.admin_cluster import cluster
from tests.support.aio import each_loop
from tests.support.commands import home, started

__all__ = ["cluster", "each_loop", "home", "started"]
