"""RocketMQ's keys for classes of its own access control: the usual ones change nothing here.

Another class would decide otherwise than this server does, so it cannot be passed over.
"""

from collections.abc import Mapping

from bolide.errors import ConfigError

_PACKAGE = "org.apache.rocketmq.auth"

USUAL_CLASSES: Mapping[str, tuple[str, ...]] = {
    "authenticationProvider": (
        f"{_PACKAGE}.authentication.provider.DefaultAuthenticationProvider",
    ),
    "authenticationMetadataProvider": (
        f"{_PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider",
    ),
    "authenticationStrategy": (
        f"{_PACKAGE}.authentication.strategy.StatelessAuthenticationStrategy",
        f"{_PACKAGE}.authentication.strategy.StatefulAuthenticationStrategy",
    ),
    "authorizationProvider": (f"{_PACKAGE}.authorization.provider.DefaultAuthorizationProvider",),
    "authorizationMetadataProvider": (
        f"{_PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider",
    ),
    "authorizationStrategy": (
        f"{_PACKAGE}.authorization.strategy.StatelessAuthorizationStrategy",
        f"{_PACKAGE}.authorization.strategy.StatefulAuthorizationStrategy",
    ),
}
"""RocketMQ's own classes by key. A stateful strategy is only faster: every request is checked."""


def refuse_other_classes(texts: Mapping[str, str]) -> None:
    """Raises ConfigError if a key names a class that is not RocketMQ's own."""
    for key, usual in USUAL_CLASSES.items():
        given = texts.get(key, "").strip()
        if given and given not in usual:
            raise ConfigError(
                f"{key}={given}: classes in Java cannot be loaded, and without it another decision"
                " would be made; remove the key to have the decisions of RocketMQ's own class"
            )
