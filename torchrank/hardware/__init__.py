"""Threads of a CPU; float types, costs and constants of a device; pauses of the garbage collector.

Imports no other package of torchrank.
"""

from __future__ import annotations
