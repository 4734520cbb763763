"""What a consumer wants of a topic: as a broker is told, and as the consumer checks it again."""

from dataclasses import dataclass
from typing import Final

from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.tags import TagExpression

TAG: Final = "TAG"
SQL92: Final = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL92 expression over message properties, such as `Sql("price > 10 AND region = 'eu'")`."""

    text: str


Expression = str | Sql
"""Tags, such as `"A || B"` or `"*"`, or SQL."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A subscription to one topic; the version is the time it was made, in milliseconds."""

    topic: str
    expression: str
    expression_type: str
    version: int
    tags: frozenset[str]
    codes: frozenset[int]

    @classmethod
    def of(cls, topic: str, expression: Expression, version: int) -> "Filter":
        """Raises BadTagExpression for text that names no tag."""
        if isinstance(expression, Sql):
            return cls(topic, expression.text, SQL92, version, frozenset(), frozenset())
        parsed = TagExpression.parse(expression)
        return cls(topic, parsed.text, TAG, version, parsed.tags, parsed.codes)

    @property
    def is_by_tags(self) -> bool:
        return self.expression_type == TAG

    def matches(self, tags: str | None) -> bool:
        """Judge by the text of the tags: a broker compares only their hashes."""
        return not self.tags or tags in self.tags

    def announced(self) -> Subscription:
        """The form that heartbeats carry."""
        return Subscription(
            topic=self.topic,
            sub_string=self.expression,
            expression_type=self.expression_type,
            sub_version=self.version,
            tags_set=sorted(self.tags),
            code_set=sorted(self.codes),
        )
