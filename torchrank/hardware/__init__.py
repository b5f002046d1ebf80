"""Threads of a CPU, and the float types and costs of a device. Imports no other package of torchrank."""

from __future__ import annotations
