"""Evaluation in the trainers and on the engines of other libraries: a file for each, imported when it is used."""

from importlib import import_module
from types import ModuleType

__all__ = [
    "boosters",
    "huggingface",
    "ir_measures",
    "lightning",
    "mlflow",
    "optuna",
    "pykeen",
    "ray",
    "sentence_transformers",
    "sklearn",
    "spark",
]


def __getattr__(name: str) -> ModuleType:
    """Import an integration when it is used, because the library that it serves may take seconds to import."""
    if name in __all__:
        return import_module(f"torchrank.integrations.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
