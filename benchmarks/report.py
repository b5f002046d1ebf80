"""The file of results: machine, versions and results, which can be merged from several runs."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import resource
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import torchrank
from benchmarks.memory import ROOT

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "torchmetrics", "numpy", "ranx", "numba", "pytrec_eval-terrier", "ir_measures", "torch_geometric", "pykeen", "scipy"
)  # fmt: skip

Report = dict[str, Any]


class RefusedError(Exception):
    """The reason why a command cannot be carried out."""


def new(device: str, quick: bool) -> Report:
    """A report without results."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "quick": quick,
        "machine": machine(device),
        "versions": versions(),
        "workloads": {},
        "scaling": {},
    }


def machine(device: str) -> dict[str, Any]:
    """The processor, and the accelerator if it is measured."""
    about = {"cpu": _cpu(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "system": platform.system()}
    return about if device == "cpu" else about | {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def versions() -> dict[str, str | None]:
    """Versions of packages; None = not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "torch": torch.__version__}
    found |= {"torchrank": torchrank.__version__, "commit": commit()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


class Watch:
    """The time of a measurement, and the number of cores that other processes used meanwhile.

    Ratios are not reliable if other processes run, because code on several threads is slowed down far more than code
    on one thread.
    """

    def __init__(self) -> None:
        self.start, self.before = time.monotonic(), _others()

    def told(self, own: float = 0.0) -> dict[str, Any]:
        """Time, commit, and the cores of other processes (None = unknown on this system).

        Args:
            own: processor seconds of the measurement in processes that are no children of this one.
        """
        found: dict[str, Any] = {"at": datetime.datetime.now().isoformat(timespec="minutes"), "commit": commit()}
        before, after, seconds = self.before, _others(), time.monotonic() - self.start
        cores = None if before is None or after is None else round((after - before - own) / seconds, 2)
        return found | {"cores_of_others": cores}


def _others() -> float | None:
    """Processor seconds used so far by all other processes, except ended children of this one; None = unknown."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, *interrupts = (int(ticks) for ticks in stat.read_text().split("\n")[0].split()[1:9])
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - own


def commit() -> str | None:
    """The measured commit, with "+" if files have changed; None outside of a clone."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "torchrank") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def default_path(machine: dict[str, Any]) -> Path:
    """Today's file for a machine."""
    name = re.sub("[^a-z0-9]+", "-", machine.get("gpu", "cpu").lower()).strip("-")
    return RESULTS / f"{name}-{datetime.date.today().isoformat()}.json"


def all_of(device: str) -> list[tuple[str, Path]]:
    """The dates and paths of the files for a kind of device. Files named after a further machine are left out."""
    paths = RESULTS.glob("*-[0-9][0-9].json")
    return [(report["date"], path) for path in paths if (report := read(path))["device"] == device]


def newest(device: str) -> Path:
    """The path of the newest file for a kind of device."""
    dated = all_of(device)
    if not dated:
        raise RefusedError(f"Expected results for {device} in {RESULTS}, found none")
    return max(dated)[1]


def read(path: Path) -> Report:
    """Read a report from its file."""
    if not path.is_file():
        raise RefusedError(f"Expected a file of results, got {path}")
    return json.loads(path.read_text())


def write(report: Report, path: Path) -> None:
    """Write a report to its file, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Write another file and rename it: an interrupted write leaves the old file intact.
    part = path.with_suffix(".part")
    text = json.dumps(report, indent=1)
    text = re.sub(r"\[([^][{}]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)  # short lists on one line
    part.write_text(text + "\n")
    part.replace(path)


def merged(fresh: Report, path: Path) -> Report:
    """``fresh``, and the results of the file for workloads that ``fresh`` does not contain.

    Raises:
        RefusedError: the file has results of another machine, device, kind of run or version of torch.
    """
    if not path.exists():
        return fresh
    old = read(path)
    for what in ("device", "quick", "machine"):
        if old[what] != fresh[what]:
            raise RefusedError(f"Expected {what} {fresh[what]} in {path}, got {old[what]}; --out names another file")
    if old["versions"]["torch"] != fresh["versions"]["torch"]:
        raise RefusedError(f"Expected torch {fresh['versions']['torch']} in {path}, got {old['versions']['torch']}")
    return {**fresh, **{part: {**old[part], **fresh[part]} for part in ("workloads", "scaling")}}
