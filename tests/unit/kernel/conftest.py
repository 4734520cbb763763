import pytest

from tests.unit.kernel.kernels import NAMES, Kernel, kernel_named


@pytest.fixture(scope="session", params=NAMES)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Run each test on the plain-Python and on the compiled kernel."""
    return kernel_named(request.param)
