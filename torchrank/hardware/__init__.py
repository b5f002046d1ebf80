"""The machine: threads on a CPU, and the precision and costs of a device. It imports no other room."""

from __future__ import annotations
