"""Values of queries become sums, and sums become one number, on one worker or on many."""

from __future__ import annotations
