"""Why an expression is no filter, and why one gives no verdict."""

from bolide.errors import BolideError


class BadExpression(BolideError):
    """The text is no filter; the message says where and what was expected."""


class EvaluationFailed(Exception):
    """A property cannot be compared as the expression asks, such as 'abc' with a number.

    RocketMQ does not match such a message, whatever stands around the comparison.
    """
