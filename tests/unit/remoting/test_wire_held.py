"""Memory held for peers."""

from bolide.remoting.wire import MemoryBudget


def test_relief_is_called_for_only_when_the_total_grows_past_the_limit() -> None:
    called: list[int] = []
    held = MemoryBudget(100, lambda: called.append(held.total))
    held.change(60)
    held.change(40)
    assert called == []
    held.change(1)
    assert called == [101]
    held.change(-1)
    assert held.total == 100
    assert called == [101]
