"""The `bolide` command, and `mqnamesrv`, `mqbroker` and their like under RocketMQ's names.

A command is a function that parses its arguments, calls the package that does the work, and prints.
`program` assembles the commands. Modules that import a server, Spark or the client are loaded only
when their command runs.
"""

from bolide.cli.command_line import DAMAGE_FOUND, START_FAILED
from bolide.cli.program import (
    app,
    main,
    mqadmin,
    mqbroker,
    mqcontroller,
    mqnamesrv,
    mqshutdown,
)

__all__ = [
    "DAMAGE_FOUND",
    "START_FAILED",
    "app",
    "main",
    "mqadmin",
    "mqbroker",
    "mqcontroller",
    "mqnamesrv",
    "mqshutdown",
]
