"""The time of a new interpreter that imports a package."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.memory import ROOT
from benchmarks.plan import Contender, Prepared


def importing(package: str) -> Contender:
    """Start Python, import a package, and exit."""
    command = [sys.executable, "-c", f"import {package}"]
    return lambda data: Prepared(lambda: subprocess.run(command, cwd=ROOT, check=True))
