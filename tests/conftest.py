"""Every process that runs tests gets the settings of the suite. One that hands them out to others imports nothing."""

import importlib

import pytest


def pytest_configure(config):
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(importlib.import_module("tests.support.pytest_settings"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out all cases of a function at once, beside the groups: a message for each costs as much as many a case."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFunction(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return super()._split_scope(nodeid).split("[")[0]

    return ByFunction(config, log)
