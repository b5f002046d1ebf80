"""Settings and fixtures of the whole suite, for every process that runs tests."""

import atexit
import contextlib
import functools
import gc
import os
import sys
import zlib
from importlib.util import find_spec

# A worker of pytest-xdist ends without taking all its objects apart. Registered first, this is called last.
if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)

import tests.support.torchmetrics_alone  # noqa: I001 - before all that imports torchmetrics

import pytest
import torch
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

import tests.support.small_batches  # noqa: F401
import torchrank.metrics  # noqa: F401 - fills the registries
from tests.support import layout_cases
from torchrank.hardware import costs
from torchrank.names.registry import KINDS

# ranx compiles its functions for minutes in a new environment, and gives the same numbers without.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

# Without this, torch.compile builds ten small programs to see which vector instructions the compiler knows.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# With more, torch.compile starts processes that import torch, for the few kernels that tests compile.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

# Figures are drawn without a window: here, not in the kernel of notebooks. torchmetrics has imported matplotlib.
if "matplotlib" in sys.modules:
    sys.modules["matplotlib"].use("agg")

# Ray Data groups rows by sorting in the worker that it has. Its default starts two more.
os.environ.setdefault("RAY_DATA_DEFAULT_SHUFFLE_STRATEGY", "sort_shuffle_pull_based")

# MLflow sends nothing about its use.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

# Tests are many and tensors tiny: threads only get in each other's way, all the more under pytest-xdist.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of processes that tests start

# Thousands of tests are collected, and all of them stay: the collector of garbage would look at them in vain. Later it
# finds little, because most objects are in no circle.
gc.disable()
gc.set_threshold(500_000, 20, 50)

# The first call of a kernel can take longer than any sensible deadline.
settings.register_profile(
    "torchrank", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.load_profile("torchrank")


def pytest_sessionstart(session):
    """Let a worker of pytest-xdist send two messages for a test that passes, not six. They take as long as a test."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = functools.partial(send, plugin.sendevent)


def send(sendevent, name, **content):
    report = content.get("data", {})
    stage = report.get("when") in ("setup", "teardown") and report["outcome"] == "passed"
    if name in ("logstart", "logfinish") or (stage and report["duration"] < 0.005):  # shorter ones are never printed
        return
    sendevent(name, **content)


#: the beginnings of names of doctests, and the package without which they cannot run
NEEDED = {"torchrank.evaluation.plots": "matplotlib", "torchrank.statistics.paired.tukey_p": "scipy"}


def pytest_runtest_setup(item):
    """Seed the random numbers of a test by its name, and skip a test whose packages are not all installed."""
    torch.default_generator.manual_seed(zlib.crc32(item.nodeid.encode()))
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    for name in names + [name for start, name in NEEDED.items() if item.name.startswith(start)]:
        pytest.importorskip(name)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Do not import files in which no doctest is, or whose library takes long to import: other tests run theirs."""
    looked_at = ">>>" in file_path.read_text("utf-8", "replace")
    late = ("lightning", "mlflow", "optuna", "pykeen", "ray", "sklearn")
    if file_path.parent.name == "integrations" and file_path.stem in late:
        looked_at = False
    if file_path.stem == "ir_measures" and find_spec("ir_measures") is None:
        looked_at = False
    return [file for file in (yield) if looked_at or not isinstance(file, DoctestModule)]


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    gc.freeze()  # pytest looks for garbage five times at its end


@pytest.fixture
def assume():
    """Function that changes some costs until the test ends, so that a plan follows that would serve other sizes."""
    with contextlib.ExitStack() as stack:
        yield lambda **changes: stack.enter_context(costs.assumed(**changes))


@pytest.fixture(scope="session")
def mlflow_store(tmp_path_factory):
    """The address of a database of MLflow, whose tables take seconds to make."""
    pytest.importorskip("mlflow")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'runs.db'}"


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """No metric writes into its arguments, and no test changes the next one."""
    before = [dict(measures) for measures in KINDS]
    yield
    layout_cases.take_back()
    for measures, those in zip(KINDS, before):  # other files test all measures that there are
        if measures.keys() != those.keys():
            measures.clear()
            measures.update(those)
    modes = torch._C._len_torch_function_stack()
    torch.set_default_device(None)
    assert modes == 0, "a default device was left behind, which slows every call of torch down"
