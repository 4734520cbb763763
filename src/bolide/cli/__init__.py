"""The `bolide` command, and `mqnamesrv`, `mqbroker` and `mqadmin`, as RocketMQ names them.

One file a noun, one function a verb: it takes words, calls what does the work, and prints.
"""

from bolide.cli.command_line import DAMAGE_FOUND, START_FAILED
from bolide.cli.program import app, main, mqadmin, mqbroker, mqnamesrv

__all__ = ["DAMAGE_FOUND", "START_FAILED", "app", "main", "mqadmin", "mqbroker", "mqnamesrv"]
