"""Threads of a CPU, float types and costs of a device, garbage. Imports no other package of torchrank."""

from __future__ import annotations
