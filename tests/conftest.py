"""Every process that runs tests gets the settings of the suite. One that hands them out to others imports nothing."""

import importlib

import pytest


def pytest_configure(config):
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(importlib.import_module("tests.support.pytest_settings"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out all cases of a function at once: a message for each costs as much as many a case.

    Groups take long, so they come first: one of them at the end would leave the other workers without anything to do.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFunction(LoadGroupScheduling):
        def _split_scope(self, nodeid):
            return super()._split_scope(nodeid).split("[")[0]

        def schedule(self):
            super().schedule()
            for group in [scope for scope in self.workqueue if "::" not in scope]:
                self.workqueue.move_to_end(group, last=False)

    return ByFunction(config, log)
