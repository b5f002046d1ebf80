"""Checks of the user's tensors: bad shapes and dtypes raise at once, bad values are counted."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import all_finite
from torchrank.layouts.bad_values import Problem, count, no_errors

# Dtypes that torch can compare. The others have 8-bit floats or integers of fewer than 8 bits.
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64),
)


def grades(target: Tensor, device: torch.device) -> Tensor:
    """Check relevance grades, a dense tensor, and move them to a device, in their dtype; bool becomes int8."""
    if target.is_complex() or target.dtype in (torch.uint16, torch.uint32, torch.uint64):
        hint = "" if target.is_complex() else "; pass target.long()"
        raise TypeError(f"Expected grades to be integer, bool or floating point, got {target.dtype}{hint}")
    target = target.detach().to(device)
    # Grades are subtracted and sorted, and torch does not subtract bool.
    return target.to(torch.int8) if target.dtype == torch.bool else target


def bad_tie_break(tie_break: Tensor, mask: Tensor | None, ignored: Tensor | None = None) -> Tensor:
    """Counters of the queries with NaN among the tie breaks of their candidates."""
    if not tie_break.is_floating_point():
        return no_errors(tie_break.device)
    bad = tie_break.isnan()
    bad = bad if mask is None else bad & mask
    return count(Problem.NAN_SCORES, bad.any(-1) if bad.dim() > 1 else bad, ignored)


def bad_grades(grade: Tensor, where: Tensor | None) -> Tensor:
    """Counters of the grades that are NaN or infinite, at the positions of ``where`` (None = all)."""
    if not grade.is_floating_point() or all_finite(grade):
        return no_errors(grade.device)
    bad = ~grade.isfinite()
    if where is not None:
        bad = bad & (where.unsqueeze(-1) if bad.dim() > where.dim() else where)
    return count(Problem.BAD_GRADES, bad)


def integer_ids(ids: Tensor, name: str, beside: str) -> Tensor:
    """Check that ids are integers that int64 can hold, and detach them.

    Args:
        ids: the ids.
        name: their name in an error.
        beside: the name of the other argument in an error.
    """
    check_tensor(ids, name)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        way_out = f"; pass {name}.long()" if name.isidentifier() else ""
        if beside.startswith("integer preds"):
            way_out = (
                ". Integer preds are ids, never scores; if yours are scores of graded candidates, pass preds.float()"
            )
        raise TypeError(f"Expected {name} beside {beside} to hold integer ids, got {ids.dtype}{way_out}")
    if ids.dtype == torch.uint64:
        raise TypeError(
            f"Expected {name} beside {beside} to hold ids that int64 can hold, got {ids.dtype}; pass ids below 2**63"
            " as int64"
        )
    return ids.detach()


def check_not_exchanged(preds: Tensor, target: Tensor) -> None:
    """Raise TypeError if integers were given in the place of scores, and scores in the place of labels."""
    if preds.is_complex() or not target.is_floating_point():
        return
    if target.shape == preds.shape:
        # Integer scores with float grades are an error too, with another way out. So values decide which error it is;
        # waiting for a device does not matter then.
        labels = preds.dtype == torch.bool or bool(((preds == 0) | (preds == 1)).all())
        exchanged = labels or bool((target != target.round()).any())
    else:
        exchanged = preds.dim() == 1 and target.dim() == 2 and len(target) == len(preds)
    if exchanged:
        raise TypeError(
            "Expected scores first and their labels second, got preds that are labels,"
            f" {preds.dtype} {list(preds.shape)}, and target that is scores, {target.dtype} {list(target.shape)};"
            " exchange preds and target"
        )


def check_tensor(x: object, name: str, wanted: str = "a tensor") -> None:
    """Raise TypeError unless an argument is a dense tensor of a dtype that torch can compare."""
    if not isinstance(x, Tensor):
        raise TypeError(f"Expected {name} to be {wanted}, got {type_of(x, name)}")
    if x.is_nested:
        raise TypeError(
            f"Expected {name} to be a dense tensor, got a nested tensor; pass"
            " torch.nested.to_padded_tensor(...), and mask for its padding"
        )
    if x.layout is not torch.strided:
        raise TypeError(
            f"Expected {name} to be a dense tensor, got {x.layout}; pass it as .to_dense(), or (query, item) pairs as a"
            " tuple"
        )
    if x.dtype not in DTYPES and not x.is_complex():
        raise TypeError(f"Expected {name} in a dtype that torch can compare, got {x.dtype}; pass it as .float()")


def type_of(x: object, name: str) -> str:
    """The type of an argument that is no tensor, with the call that makes it one if there is one."""
    if isinstance(getattr(x, "indices", None), Tensor):  # the result of torch.topk or sort
        return f"{type(x).__name__}; pass {name}.indices"
    hint = f"; pass torch.as_tensor({name})" if isinstance(x, list | tuple) or hasattr(x, "__array__") else ""
    return type(x).__name__ + hint


def shape_of(x: object) -> object:
    """The shape of a tensor, or the type of any other object, for an error."""
    if not isinstance(x, Tensor):
        return type(x).__name__
    return "nested" if x.is_nested else list(x.shape)


def on_grid(x: object, name: str, preds: Tensor, dtype: torch.dtype | None = None, also: str = "") -> Tensor:
    """Check that an argument is a tensor of the shape of ``preds``, detach it and move it to their device.

    Raises:
        TypeError, ValueError: it has another type, dtype or shape.
    """
    check_tensor(x, name, wanted := "a bool tensor" if dtype is torch.bool else "a tensor")
    assert isinstance(x, Tensor)
    if dtype is not None and x.dtype != dtype:
        way_out = f"; pass {name}.bool()" if dtype is torch.bool else ""
        raise TypeError(f"Expected {name} to be {wanted}, got {x.dtype}{way_out}")
    if x.shape != preds.shape:
        raise ValueError(f"Expected {name} of preds' shape {list(preds.shape)}{also}, got {list(x.shape)}")
    return x.detach().to(preds.device)


def comparable(x: Tensor) -> Tensor:
    """A tensor with uint16 and uint32 converted to int64, because torch lacks many operations on them."""
    return x.long() if x.dtype in (torch.uint16, torch.uint32) else x


def one_column(preds: Tensor) -> Tensor:
    """Replace scores of width 0 with one column of -inf, so that engines never read an empty row."""
    return preds.new_full((preds.shape[0], 1), float("-inf"))
