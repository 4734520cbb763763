"""Settings of consumers: sorted from those of their client, and checked."""

import pytest

from bolide.client.consumer.settings import (
    ConsumerSettings,
    LitePullSettings,
    PushSettings,
    split_arguments,
)
from bolide.errors import ConfigError


def test_arguments_go_to_the_consumer_and_to_its_client() -> None:
    given = {"concurrency": 3, "name_server": "127.0.0.1:9876", "model": "broadcasting"}
    settings, client = split_arguments(PushSettings, given)
    assert (settings.concurrency, settings.is_broadcasting) == (3, True)
    assert client.name_servers == ("127.0.0.1:9876",)


def test_a_broadcasting_consumer_keeps_its_client_id_and_others_have_their_own() -> None:
    _, broadcasting = split_arguments(ConsumerSettings, {"model": "broadcasting"})
    _, first = split_arguments(ConsumerSettings, {})
    _, second = split_arguments(ConsumerSettings, {})
    assert broadcasting.instance_name == "DEFAULT"
    assert first.client_id != second.client_id


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="concurency"):
        split_arguments(PushSettings, {"concurency": 3})


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (PushSettings, {"concurrency": 0}, "concurrency=0"),
        (PushSettings, {"pull_batch_size": 1025}, "pull_batch_size=1025"),
        (PushSettings, {"pull_interval": -1}, "pull_interval=-1"),
        (PushSettings, {"consume_timeout": 0}, "consume_timeout=0"),
        (PushSettings, {"model": "cluster"}, "model='cluster'"),
        (PushSettings, {"consume_from": "end"}, "consume_from='end'"),
        (PushSettings, {"max_reconsume_times": -1}, "max_reconsume_times=-1"),
        (LitePullSettings, {"pull_batch_size": 0}, "pull_batch_size=0"),
        (LitePullSettings, {"most_held": 0}, "most_held=0"),
        (ConsumerSettings, {"commit_interval": 0}, "commit_interval=0"),
    ],
)
def test_a_setting_out_of_its_bounds_is_named(
    kind: type[ConsumerSettings], given: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        split_arguments(kind, given)


def test_messages_are_sent_back_sixteen_times_unless_told_otherwise() -> None:
    assert PushSettings().sent_back_times == 16
    assert PushSettings(max_reconsume_times=2).sent_back_times == 2
