"""The kernel of the notebooks ends with the tests."""

import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel():
    yield
    if "notebooks" in sys.modules:
        sys.modules["notebooks"].close()
