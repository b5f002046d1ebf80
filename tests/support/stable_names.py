"""The names that releases must not change: ``python -m tests.support.stable_names`` adds new ones to the list."""

import contextlib
import functools
import importlib
import inspect
from pathlib import Path

import torch

import torchrank as tr
from torchrank.names.registry import measures

LIST = Path(__file__).parents[1] / "docs/stable_names.txt"
#: methods without an underscore that only this package calls
INSIDE = {"add", "in_rank_order", "parts", "rank"}
#: arguments of a measure that needs data on the catalogue
CATALOGUES = [{}, {"num_items": 5}, {"interactions": torch.arange(1.0, 6.0)}]


def names():
    """Public names with their arguments, labels with the arguments that they can show, and names of states."""
    return {part for line in (*_public(), *_labels(), *_states()) for part in parts(line)}


def parts(line):
    """The promises of a line: its name, and each argument with its default, so that a release may add arguments."""
    name, *arguments = line.split(" | ")
    return [name, *(f"{name} | {argument}" for argument in arguments)]


def listed():
    """The promises that the list has."""
    return {part for line in LIST.read_text(encoding="utf-8").splitlines() for part in parts(line)}


@functools.cache
def absent():
    """The beginnings of lines about integrations whose library is not installed."""
    lines = []
    for name in tr.integrations.__all__:
        try:
            getattr(tr.integrations, name)
        except ImportError:
            lines.append(f"name   torchrank.integrations.{name}")
    return tuple(lines)


def _public():
    modules = ["torchrank", *(f"torchrank.{name}" for name in ("extend", "integrations", "retrieval"))]
    integrations = [f"torchrank.integrations.{name}" for name in tr.integrations.__all__]
    modules += [name for name in integrations if f"name   {name}" not in absent()]
    for module in map(importlib.import_module, modules):
        own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == module.__name__]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            if f"name   {module.__name__}.{name}" in absent():
                continue
            thing = getattr(module, name)
            yield " | ".join([f"name   {module.__name__}.{name}", *_arguments(thing)])
            if isinstance(thing, type) and module is tr and _room(thing) != "torchrank.metrics":
                yield from _defaults_of_methods(module.__name__, thing)


def _room(cls):
    return ".".join(cls.__module__.split(".")[:2])


def _defaults_of_methods(module, cls):
    """The arguments of the methods of a class that may be left out."""
    own = {key for base in cls.__mro__ if _room(base) == _room(cls) for key in vars(base) if not key.startswith("_")}
    for key in sorted(own - INSIDE):
        if defaults := [one for one in _arguments(getattr(cls, key)) if "=" in one]:
            yield " | ".join([f"name   {module}.{cls.__name__}.{key}", *defaults])


def _arguments(thing):
    if not callable(thing):
        return []
    return [str(one.replace(annotation=one.empty)) for one in inspect.signature(thing).parameters.values()]


def _labels():
    for name, cls in measures().items():
        if cls.__module__.startswith("torchrank."):
            arguments = [f"{key}={value!r}" for key, value in cls.definition().items()]
            yield " | ".join([f"label  {name}{'@k' * cls.takes_top_k}", *arguments])


def _states():
    wrappers = [tr.PerQuery("ndcg@10"), tr.Bootstrapped("ndcg@10"), tr.TieReport("ndcg@10")]
    wrappers += [tr.Sliced("ndcg@10", ["a", "b"]), tr.Compared("ndcg@10", ["a", "b"]), tr.Abstention("ndcg@10")]
    wrappers += [tr.Rectified("ndcg@10"), tr.Grouped("ndcg@10")]
    made = [*wrappers, tr.SampledRanks(num_negatives=3, num_items=10), tr.MAP(10, aggregation="median")]
    for cls in measures().values():
        for arguments in CATALOGUES * cls.__module__.startswith("torchrank."):
            with contextlib.suppress(TypeError, ValueError):
                made.append(cls(**arguments))
                break
    for metric in made:
        yield from (f"state  {state}" for state in metric._defaults)


if __name__ == "__main__":
    lines = {}
    for promise in [*(listed() if LIST.exists() else []), *names()]:  # nothing goes unseen
        name, *argument = promise.split(" | ")
        lines.setdefault(name, []).extend(one for one in argument if one not in lines.get(name, []))
    text = [" | ".join([name, *sorted(arguments)]) for name, arguments in sorted(lines.items())]
    LIST.write_text("\n".join(text) + "\n", encoding="utf-8")
