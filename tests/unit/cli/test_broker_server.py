"""What a broker prints about its acknowledgements."""

from typing import Any

import pytest

from bolide.broker.settings.config import BrokerConfig, BrokerRole
from bolide.cli.broker_server import meaning_of_an_answer
from bolide.store.config import FlushMode, StoreConfig

ELECTED: dict[str, Any] = {"enable_controller_mode": True, "controller_addr": ("c:1",)}
SYNC: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "has it on the disk first."),
        (SYNC, "A slave has it, too."),
        ({**SYNC, "in_sync_replicas": 3}, "3 copies with the master's."),
        ({**SYNC, "in_sync_replicas": 1}, "a failover can lose it."),
        (ELECTED, "Every member of the sync-state set has it, too."),
        ({**ELECTED, "all_ack_in_sync_state_set": False}, "a failover can lose it."),
        ({"broker_role": BrokerRole.SLAVE, "broker_id": 1}, "takes none from producers."),
    ],
)
def test_the_meaning_of_an_answer_includes_replicas(settings: dict[str, Any], said: str) -> None:
    assert meaning_of_an_answer(BrokerConfig(**settings), StoreConfig()).endswith(said)


def test_the_disk_comes_first() -> None:
    told = meaning_of_an_answer(BrokerConfig(**SYNC), StoreConfig(flush_mode=FlushMode.SYNC))
    assert told.startswith("An acknowledged message is on this disk")
    assert told.endswith("A slave has it, too.")
