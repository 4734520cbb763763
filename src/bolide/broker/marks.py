"""The properties that a broker adds to every message it takes, and the fields of its answers."""

from dataclasses import dataclass
from typing import Self

from msgspec import field

from bolide.broker.config import BrokerConfig
from bolide.model.properties import PropertyName
from bolide.protocol.header import Header
from bolide.protocol.property_string import PAIR_END, encode_properties

_SET_BY_BROKER = (PropertyName.REGION, PropertyName.TRACE_ON, PropertyName.CLUSTER)


class SendMarks(Header, frozen=True, kw_only=True):
    """What stands in every answer to a send, refusals too: clients read it without a check."""

    region: str = field(name="MSG_REGION")
    trace_on: bool = field(name="TRACE_ON")


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of a broker; made anew when its settings change."""

    answer: SendMarks
    properties: dict[str, str]
    suffix: str
    """The same as a property string."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        answer = SendMarks(region=config.region_id, trace_on=config.trace_on)
        texts = (config.region_id, "true" if config.trace_on else "false")
        marks = dict(zip(_SET_BY_BROKER, (*texts, config.broker_cluster_name), strict=True))
        return cls(answer, marks, encode_properties(marks))

    def add_to(self, properties: str) -> str:
        """The property string with the marks behind it; it has none of them yet."""
        joint = "" if not properties or properties.endswith(PAIR_END) else PAIR_END
        return f"{properties}{joint}{self.suffix}"
