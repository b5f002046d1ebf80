"""Checks of the user's tensors: bad shapes and dtypes raise at once, bad values are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import all_finite
from torchrank.layouts.bad_values import Problem, count, no_errors
from torchrank.names.arguments import warn

# Dtypes that torch can compare. The others have 8-bit floats or integers of fewer than 8 bits.
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64),
)

# Names of arguments that are scores, as they are in errors and in their ways out.
SCORES = {"preds": "preds", "each of blocks": "block"}


def grades(target: Tensor, device: torch.device, where: Tensor | None) -> tuple[Tensor, Tensor]:
    """Check relevance grades, a dense tensor, and move them to a device, in their dtype; bool becomes int8.

    Also returns counters of the grades that are NaN or infinite, at the positions of ``where`` (None = all).
    """
    if target.is_complex() or target.dtype in (torch.uint16, torch.uint32, torch.uint64):
        hint = "" if target.is_complex() else "; pass target.long()"
        raise TypeError(f"Expected grades to be integer, bool or floating point, got {target.dtype}{hint}")
    target = target.detach().to(device)
    # Grades are subtracted and sorted, and torch does not subtract bool.
    grade = target.to(torch.int8) if target.dtype == torch.bool else target
    if not grade.is_floating_point() or all_finite(grade):
        return grade, no_errors(device)
    bad = ~grade.isfinite()
    if where is not None:
        bad = bad & (where.unsqueeze(-1) if bad.dim() > where.dim() else where)
    return grade, count(Problem.BAD_GRADES, bad)


def bad_tie_break(
    tie_break: Tensor, mask: Tensor | None, ignored: Tensor | None = None, indexes: Tensor | None = None
) -> Tensor:
    """Counters of the queries with NaN among the tie breaks of their candidates; ``indexes`` are those of flat rows."""
    if not tie_break.is_floating_point():
        return no_errors(tie_break.device)
    bad = tie_break.isnan()
    bad = bad if mask is None else bad & mask
    bad = bad.any(-1) if indexes is None else torch.ones_like(indexes[bad].unique(), dtype=torch.bool)
    return count(Problem.NAN_SCORES, bad, ignored)


def integer_ids(ids: Tensor, name: str, beside: str) -> Tensor:
    """Check that ids are integers that int64 can hold, and detach them.

    Args:
        ids: the ids.
        name: their name in an error.
        beside: the name of the other argument in an error.
    """
    ids = check_tensor(ids, name)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        way_out = as_integers(ids, name) if name.isidentifier() else ""
        if beside.startswith("integer preds"):
            way_out = (
                ". Integer preds are ids, never scores; if yours are scores of graded candidates, pass preds.float()"
            )
        raise TypeError(f"Expected {name} with {beside} to hold integer ids, got {ids.dtype}{way_out}")
    if ids.dtype == torch.uint64:
        raise TypeError(
            f"Expected {name} with {beside} to hold ids that int64 can hold, got {ids.dtype}; pass ids below 2**63"
            " as int64"
        )
    return ids.detach()


def as_integers(x: Tensor, name: str) -> str:
    """The end of an error on numbers that are not integers: a way out, or that some have a fraction."""
    if x.is_complex():
        return ""
    return f"; pass {name}.long()" if x.dtype == torch.bool or bool((x == x.round()).all()) else " with fractions"


def check_not_exchanged(preds: Tensor, target: Tensor) -> None:
    """Raise TypeError, or warn, if labels were given in the place of scores, and scores in the place of labels.

    Args:
        preds: of any dtype.
        target: floating point.
    """
    if preds.is_complex():
        return
    if preds.is_floating_point():
        # Labels are whole numbers that repeat. Scores have fractions, and more of them differ.
        if target.shape == preds.shape and preds.is_cpu and _whole(preds[:1]) and not _whole(target):
            labels, scores = (len(x.unique()) for x in (preds, target))
            if 2 <= labels < scores and 2 * labels < preds.numel() and _whole(preds):
                warn(
                    "Read preds, whole numbers that repeat, as scores, and target, fractions that differ, as grades; if"
                    " they are labels and scores, exchange preds and target"
                )
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


def _whole(x: Tensor) -> bool:
    """Whether all elements are whole and finite numbers."""
    return all_finite(x) and bool((x == x.round()).all())


def check_floating(x: Tensor, name: str, what: str = "scores") -> None:
    """Raise TypeError unless scores or embeddings are floating point."""
    if not x.is_floating_point():
        way_out = "" if x.is_complex() else f"; pass {name}.float()"
        raise TypeError(f"Expected {name} to be floating point {what}, got {x.dtype}{way_out}")


def check_tensor(x: object, name: str, wanted: str = "a tensor") -> Tensor:
    """An argument as a tensor. Raises TypeError unless it is dense, of a dtype that torch can compare."""
    x = x if type(x) is Tensor else tensor_of(x)
    if not isinstance(x, Tensor):
        raise TypeError(f"Expected {name} to be {wanted}, got {type_of(x, name)}")
    if type(x) is not Tensor or torch._C._functorch.is_functorch_wrapped_tensor(x):
        _check_values(x, name)
    if x.is_nested:
        raise TypeError(
            f"Expected {name} to be a dense tensor, got a nested tensor; pass"
            " torch.nested.to_padded_tensor(...), and mask for its padding"
        )
    if x.layout is not torch.strided:
        way_out = f"pass {name}.to_dense()"
        if name in SCORES:  # a score that is not stored is none
            way_out = (
                f"make x = {SCORES[name]}.to_sparse_coo().coalesce(), and pass"
                " x.values().new_full(x.shape, -torch.inf).index_put(tuple(x.indices()), x.values())"
            )
        raise TypeError(f"Expected {name} to be a dense tensor, got {x.layout}; {way_out}")
    if x.dtype not in DTYPES and not x.is_complex():
        raise TypeError(f"Expected {name} in a dtype that torch can compare, got {x.dtype}; pass it as .float()")
    return x


def _check_values(x: Tensor, name: str) -> None:
    """Raise TypeError for a tensor that has not all its values in this process, or has none."""
    got = ""
    if hasattr(x, "full_tensor"):
        got = f"DTensor; pass {name}.full_tensor(), or {name}.to_local() if the batch is split by queries"
    elif hasattr(x, "get_mask"):
        got = f"MaskedTensor; pass {name}.get_data(), and its get_mask() as mask"
    elif hasattr(x, "fake_mode"):
        got = "FakeTensor, as under torch.export; leave the metric out of the exported function"
    elif type(x) is Tensor:
        got = "one of torch.vmap or torch.func; call the metric outside of the transformed function"
    if got:
        raise TypeError(f"Expected {name} to be a tensor whose values can be read, got {got}")


def tensor_of(x: Any) -> Any:
    """A tensor on the CPU for an array, or for a list of numbers or of equally long lists; anything else as it is.

    A tensor of a subclass becomes a plain one, because the state takes its type; not if the subclass has no values of
    its own. Arrays with masked elements stay, because the tensor would lose the mask.
    """
    if isinstance(x, Tensor):
        plain = type(x) is Tensor or type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__
        return x if plain else x.as_subclass(Tensor)
    if not (isinstance(x, list) or hasattr(x, "__array__")) or _masked(x):
        return x
    try:
        if isinstance(x, list) and x and isinstance(x[0], Tensor):
            return torch.stack(x)
        array = numpy.asarray(x)
        if not array.dtype.isnative or any(stride < 0 for stride in array.strides):  # torch cannot share its memory
            array = array.astype(array.dtype.newbyteorder("="), order="C")
        if not array.flags.writeable:  # torch would warn, but the memory is only read
            memory = array.__array_interface__
            memory |= {"data": (memory["data"][0], False)}
            array = numpy.asarray(SimpleNamespace(__array_interface__=memory, owner=array))
        return torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError):  # lists of several lengths, texts
        return x


def _masked(x: Any) -> bool:
    """Whether an array of numpy, or an array of a list, has masked elements."""
    arrays = x if isinstance(x, list) and x and hasattr(x[0], "__array__") else [x]
    return any(isinstance(one, numpy.ma.MaskedArray) and numpy.ma.is_masked(one) for one in arrays)


def indexes_of(sizes: Any, preds: Any, indexes: Any) -> Tensor:
    """The query of each row, int64 [row], from the number of rows of each query, int [query]."""
    sizes = integer_ids(sizes, "group_sizes", "flat rows")
    if indexes is not None:
        raise ValueError("Expected indexes or group_sizes, got both; leave out one of them")
    rows = len(preds) if isinstance(preds, Tensor) and preds.dim() else 0
    if sizes.dim() != 1 or int(sizes.sum()) != rows or bool((sizes < 1).any()):
        way_out = "if they are the queries of the rows, pass indexes=group_sizes" if sizes.shape == (rows,) else ""
        way_out = way_out or (
            "pass those of all rows of the batch" if int(sizes.sum()) != rows else "pass group_sizes[group_sizes > 0]"
        )
        raise ValueError(
            f"Expected group_sizes to be numbers of rows >= 1 that add up to the {rows} rows of preds, got"
            f" {sizes.numel()} numbers, {int(sizes.sum())} in all; {way_out}"
        )
    return torch.arange(len(sizes), device=sizes.device).repeat_interleave(sizes.long(), output_size=rows)


def type_of(x: Any, name: str) -> str:
    """The type of an argument that is no tensor, with the call that makes it one if there is one."""
    if isinstance(getattr(x, "indices", None), Tensor):  # the result of torch.topk or sort
        return f"{type(x).__name__}; pass {name}.indices"
    if hasattr(x, "__array__"):
        return f"{type(x).__name__} of {getattr(x, 'dtype', 'objects')}{_of_array(x, name)}"
    if hasattr(x, "toarray"):  # a sparse matrix; a score that is not stored is none
        if name not in SCORES:
            return f"{type(x).__name__}; pass {name}.toarray()"
        return (
            f"{type(x).__name__}; make x = {SCORES[name]}.tocoo() and scores = numpy.full(x.shape, -numpy.inf), set"
            " scores[x.row, x.col] = x.data, and pass scores"
        )
    if isinstance(x, tuple):
        return f"tuple; pass list({name})"
    if isinstance(x, list) and _masked(x):
        return f"list of masked arrays; pass numpy.ma.stack({name})"
    lengths = {len(one) for one in x if hasattr(one, "__len__")} if isinstance(x, list) else set()
    if len(lengths) > 1:
        return (
            f"lists of {min(lengths)} to {max(lengths)} numbers; pass torch.nn.utils.rnn.pad_sequence("
            f"[torch.as_tensor(x) for x in {name}], True, {_padding(x)})"
        )
    return type(x).__name__


def _of_array(x: Any, name: str) -> str:
    """The way out of an error on an array that cannot become a tensor; "" if none is known."""
    if _masked(x):
        kind = numpy.ma.asarray(x).dtype.kind
        fills = {"preds": -1 if kind in "iu" else "-numpy.inf", "target": False if kind == "b" else -1, "groups": -1}
        fill = (fills | {"mask": False, "weights": 0}).get(name)
        way_out = "" if fill is None else f"; pass {name}.filled({fill})"
        return f" with masked elements{way_out}{' or preds.data, and mask=~preds.mask' if name == 'preds' else ''}"
    if name in ("indexes", "groups"):
        return f"; pass numpy.unique({name}, return_inverse=True)[1]"
    for method in ("tolist", "to_list"):
        made: Any = getattr(x, method, list)()
        ids = (
            name in ("target", "exclude")
            and isinstance(made, list)
            and made
            and all(hasattr(one, "__len__") for one in made)
        )
        if (isinstance(tensor_of(made), Tensor) and made) or ids:
            return f"; pass {name}.{method}()"
    try:
        return f"; pass numpy.asarray({name}, 'float64')" if numpy.asarray(x, "float64").size else ""
    except (TypeError, ValueError):
        return ""


def _padding(lists: list) -> object:
    """What means "no candidate" in lists of bools, ids or scores."""
    kinds = {numpy.asarray(one).dtype.kind for one in lists if len(one)}
    return False if kinds == {"b"} else "-torch.inf" if "f" in kinds else -1


def shape_of(x: object) -> list[int] | str:
    """The shape of a tensor, or the type of any other object, for an error."""
    if not isinstance(x, Tensor):
        return type(x).__name__
    return "nested" if x.is_nested else list(x.shape)


def on_grid(x: object, name: str, preds: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Check that an argument is a tensor of the shape of ``preds``, detach it and move it to their device.

    Raises:
        TypeError, ValueError: it has another type, dtype or shape.
    """
    x = check_tensor(x, name, wanted := "a bool tensor" if dtype is torch.bool else "a tensor")
    if dtype is not None and x.dtype != dtype:
        way_out = f"; pass {name}.bool()" if dtype is torch.bool else ""
        raise TypeError(f"Expected {name} to be {wanted}, got {x.dtype}{way_out}")
    if x.shape != preds.shape:
        also = f" or {list(preds.shape[1:])}" if preds.dim() > 1 else ""
        raise ValueError(f"Expected {name} of preds' shape {list(preds.shape)}{also}, got {list(x.shape)}")
    return x.detach().to(preds.device)


def comparable(x: Tensor) -> Tensor:
    """A tensor with uint16 and uint32 converted to int64, because torch lacks many operations on them."""
    return x.long() if x.dtype in (torch.uint16, torch.uint32) else x


def one_column(preds: Tensor) -> Tensor:
    """Replace scores of width 0 with one column of -inf, so that engines never read an empty row."""
    return preds.new_full((preds.shape[0], 1), float("-inf"))
