"""`bolide broker`, alone `mqbroker`."""

from bolide.cli.exits import Refusing
from bolide.errors import ConfigError
from bolide.version import __version__


def broker() -> None:
    """Not there yet: RocketMQ's brokers do it."""
    with Refusing():
        raise ConfigError(
            f"version {__version__} has no broker yet; point RocketMQ's mqbroker at our NameServer"
        )
