"""Both kernels, for every test that asks."""

import pytest

from kquota.core.enforcement import Kernel, Mode, kernel


@pytest.fixture(params=[Mode.PLAIN, Mode.COMPILED])
def using(request: pytest.FixtureRequest) -> Kernel:
    return kernel(request.param)
