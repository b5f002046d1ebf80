"""The time of a new interpreter that imports a package."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.memory import ROOT
from benchmarks.plan import Contender, Prepared


def importing(statement: str) -> Contender:
    """Start Python, import a package, and exit. The bytecode of all packages is there, as after an installation."""
    command = [sys.executable, "-c", statement]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return lambda data: Prepared(lambda: subprocess.run(command, cwd=ROOT, env=environment, check=True))
