"""What holds for all tests."""

import gc

from hypothesis import HealthCheck, settings

# A machine that is busy with something else is no defect; the timeout of a test finds what hangs.
settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


def pytest_collection_finish() -> None:
    """Spare the garbage collector ten thousand tests: each time it held up what is timed."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries complain of what is never collected
