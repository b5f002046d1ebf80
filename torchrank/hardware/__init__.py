"""Threads of a CPU; float types, costs and constants of a device.

Imports only `names` of the other packages.
"""

from __future__ import annotations
