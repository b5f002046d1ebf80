"""Every process that runs tests gets the settings of the suite. One that hands them out to others imports nothing."""

import importlib


def pytest_configure(config):
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(importlib.import_module("suite"))
