"""Records, which are dataclasses: nobody can change them, and those that hold tensors are equal to themselves only."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

#: by module, the records of numbers and functions, which are equal if their fields are
BY_VALUE = {
    "gains": "Linear Exponential AtLeast Positive Scaled Satisfying GainTable OfRelevant Undiscounted Reciprocal"
    " Geometric Logarithmic Clipped",
    "averaged_ndcg": "TimesRank",
    "compatibility": "Tail",
    "gain": "PlainGain",
    "sampled": "Draw",
    "tolerance": "Tolerance",
    "canonical": "Need",
    "plan": "Plan",
}


def check(folder: str) -> None:
    """Check all records of a folder of the package."""
    package, found = importlib.import_module(f"torchrank.{folder}"), 0
    for name in (one.name for one in pkgutil.iter_modules(package.__path__) if one.name != "fused_kernels"):
        module = importlib.import_module(f"{package.__name__}.{name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and thing.__module__ == module.__name__ and dataclasses.is_dataclass(thing):
                by_value = thing.__name__ in BY_VALUE.get(name, "").split()
                given = thing.__dataclass_params__  # type: ignore[attr-defined]
                assert (given.frozen, given.eq) == (True, by_value), thing
                found += 1
    assert found
