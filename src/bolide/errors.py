"""The root of every error Bolide raises.

BolideError
├── ConfigError          a setting, a file or a command-line value that cannot be used
├── ProtocolError        a peer sent bytes that mean nothing (bolide.protocol.errors)
├── RemotingError        a call did not get an answer (bolide.remoting.errors)
└── Refusal              a peer answered that it will not (bolide.protocol.refusals)
"""


class BolideError(Exception):
    """Anything Bolide raises on purpose."""


class ConfigError(BolideError):
    """A setting that cannot be used; the text names the key, the value and the bound."""
