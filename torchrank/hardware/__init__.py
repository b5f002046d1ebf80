"""Threads of a CPU; float types, costs and constants of a device.

Imports no other package of torchrank.
"""

from __future__ import annotations
