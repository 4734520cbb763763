import pytest

from bolide.client.instance.settings import unwrap, wrap


@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("T", "NS%T"),
        ("%RETRY%G", "%RETRY%NS%G"),
        ("%DLQ%G", "%DLQ%NS%G"),
        ("TBW102", "TBW102"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_a_name_is_wrapped_once_and_unwrapped(plain: str, wrapped: str) -> None:
    assert wrap("NS", plain) == wrapped
    assert wrap("NS", wrapped) == wrapped
    assert unwrap("NS", wrapped) == plain


def test_without_a_namespace_names_stay() -> None:
    assert wrap("", "T") == "T"
    assert unwrap("", "NS%T") == "NS%T"


def test_a_name_of_another_namespace_stays() -> None:
    assert unwrap("NS", "%RETRY%OTHER%G") == "%RETRY%OTHER%G"
