"""Docstrings of public names point to public names only; their formulas are read by LaTeX."""

import inspect
import re

import torchrank as tr

#: modules whose names are public
PUBLIC = {"torchrank": tr, "torchrank.extend": tr.extend, "torchrank.retrieval": tr.retrieval}
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|obj):`~?([^`]+)`")


def texts():
    """The name, the docstring and the class of each public object, method and property of torchrank."""
    for module, names in PUBLIC.items():
        for name in names.__all__:
            thing = getattr(names, name)
            yield f"{module}.{name}", inspect.getdoc(thing) or "", thing
            for attribute in dir(thing) if inspect.isclass(thing) else []:
                member = inspect.getattr_static(thing, attribute)
                member = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if not attribute.startswith("_") and str(getattr(member, "__module__", "")).startswith("torchrank"):
                    yield f"{module}.{name}.{attribute}", inspect.getdoc(member) or "", thing


def is_public(reference, owner):
    """Whether a reference leads to a name of another package, to a public one, or to a part of the object itself."""
    if reference.split(".")[0] in ("torch", "torchmetrics") or reference in PUBLIC:
        return True
    for module, names in PUBLIC.items():
        first, *rest = reference.removeprefix(f"{module}.").split(".")
        if first in names.__all__ and has(getattr(names, first), rest):
            return True
    return inspect.isclass(owner) and has(owner, reference.split("."))


def has(thing, names):
    """Whether an object has an attribute, of an attribute, of an attribute, ..."""
    for name in names:
        if any(name in vars(cls).get("__annotations__", {}) for cls in getattr(thing, "__mro__", ())):
            return True
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


def test_docstrings_point_to_public_names_only_and_formulas_have_single_backslashes():
    every = [*texts()]
    found = {
        (reference, name)
        for name, text, owner in every
        for reference in ROLE.findall(text)
        if not is_public(reference, owner)
    }
    assert sorted(found) == []
    assert [name for name, text, _ in every if re.search(r"\\\\[a-z]", text)] == []
