"""How long a fresh interpreter takes to import a package."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.memory import ROOT
from benchmarks.plan import Contender, Prepared


def importing(package: str) -> Contender:
    """Start Python, import a package, and end."""
    command = [sys.executable, "-c", f"import {package}"]
    return lambda data: Prepared(lambda: subprocess.run(command, cwd=ROOT, check=True))
