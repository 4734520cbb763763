import pytest

from tests.unit.kernel.kernels import NAMES, Kernel, kernel_named


@pytest.fixture(scope="session", params=NAMES)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Every test that takes it runs on the reference and on the compiled kernel."""
    return kernel_named(request.param)
