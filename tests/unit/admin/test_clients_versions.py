"""Names of RocketMQ version numbers."""

import pytest

from bolide.version import ROCKETMQ_VERSION, ROCKETMQ_VERSION_NAME, version_name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (211, "V3"),
        (212, "V4_0_0_SNAPSHOT"),
        (213, "V4_0_0"),
        (409, "V4_9_8"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (ROCKETMQ_VERSION, ROCKETMQ_VERSION_NAME),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_names_are_rocketmqs(number: int, name: str) -> None:
    assert version_name(number) == name
