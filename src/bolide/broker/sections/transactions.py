"""Settings of transactional messages."""

from dataclasses import dataclass

from bolide.config import option

_INT_MAX = 2**31 - 1
_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """Durations are seconds here, milliseconds in files."""

    reject_transaction_message: bool = option(False, "Take no transactional messages.", live=True)
    transaction_timeout: float = option(
        6.0, "Milliseconds after which the producer of an open transaction is asked.",
        key="transactionTimeOut", bounds=(1, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    transaction_check_interval: float = option(
        30.0, "Milliseconds between two looks for open transactions.",
        bounds=(100, _DAY_MS), scale=1000, live=True,
    )  # fmt: skip
    transaction_check_max: int = option(
        15, "How often a producer is asked; then the message is set aside.",
        bounds=(1, _INT_MAX), live=True,
    )  # fmt: skip
