"""The kernel of the notebooks ends with the tests."""

import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel():
    yield
    if "tests.support.notebook_runs" in sys.modules:
        sys.modules["tests.support.notebook_runs"].close()
