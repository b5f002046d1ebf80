"""Rankings: the ranks of the judged candidates, and the quantities that measures derive from them."""

from __future__ import annotations
