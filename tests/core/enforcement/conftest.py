"""Both kernels, for every test that asks."""

import pytest

from kquota.core.enforcement import Kernel, kernel
from tests.support.compiled import modes


@pytest.fixture(params=modes())
def using(request: pytest.FixtureRequest) -> Kernel:
    return kernel(request.param)
