"""The root of all errors that Bolide raises.

BolideError
├── ConfigError          a setting, a file or a command-line value that cannot be used
├── ProtocolError        a peer violated the protocol (bolide.protocol.errors)
├── RemotingError        a call got no response (bolide.remoting.errors)
└── Refusal              a peer refused a request (bolide.protocol.refusals)
"""


class BolideError(Exception):
    """Base class of Bolide's errors."""


class ConfigError(BolideError):
    """An invalid setting; the text names the key, the value and the bound."""
