"""Layouts: checks the user's arguments and converts them to one of six canonical layouts."""

from __future__ import annotations
