"""Checks of the user's arguments: tensors, labels, ids and pairs in every form that a user can give.

Bad shapes and dtypes raise at once. Bad values are counted on the device while ranking, and raise in ``compute``:
reading a value back to decide whether to raise would stall an accelerator in every ``update``. So each kind of problem
has a counter. The counters are part of the state and summed over workers, so that all workers raise alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import all_finite, ascending, constant, possibly, scalar
from torchrank.layouts.canonical import Judged, Pairs
from torchrank.names.arguments import warn


class Problem(IntEnum):
    """Kinds of bad values; each is the index of its counter."""

    NAN_SCORES = 0
    BAD_GRADES = 1
    OUT_OF_RANGE = 2
    DUPLICATE_TARGETS = 3
    DUPLICATE_IDS = 4
    BAD_RANKS = 5
    BAD_WEIGHTS = 6
    EMPTY_QUERIES = 7
    UNEQUAL_SCORES = 8


#: for messages: the problem, with the words for one|several where they differ, and the expected values
MEANING = {
    Problem.NAN_SCORES: ("query|queries with NaN among the scores or tie breaks of candidates", "numbers or -inf"),
    Problem.BAD_GRADES: (
        "relevance grade,|grades, or gain|gains of it,|them, that is|are NaN or infinite",
        "finite numbers",
    ),
    Problem.OUT_OF_RANGE: (
        "label,|labels, id|ids or (query, item) index|indices out of range",
        "0 to Q - 1 for Q queries, and 0 to D - 1 for D items",
    ),
    Problem.DUPLICATE_TARGETS: (
        "target|targets given more than once for its|their query",
        "each relevant item once (if the target has grades, not ids, pass preds.float() and torch.as_tensor(target), or"
        " target.nonzero(as_tuple=True))",
    ),
    Problem.DUPLICATE_IDS: (
        "id|ids that occurs|occur more than once in a ranked list",
        "each id once: integer preds are read as ids, so pass preds.float() if they are scores; of ids repeats='first'"
        " leaves out later copies, and repeats='hold' counts them as not relevant",
    ),
    Problem.BAD_RANKS: (
        "rank|ranks below 1, beyond num_candidates, NaN or equal to another of its|their query",
        "1 for the best, infinite for not retrieved, negative for padding, or 0 in ranks [query, entry] (if ranks count"
        " from 0, pass ranks + 1)",
    ),
    Problem.BAD_WEIGHTS: (
        "query weight|weights that is|are negative or not finite, or such a| cost|costs of a| candidate|candidates",
        "finite numbers >= 0",
    ),
    Problem.EMPTY_QUERIES: ("query|queries with nothing to measure", "none under empty_target_action='error'"),
    Problem.UNEQUAL_SCORES: (
        "relevant item|items whose score|scores was|were computed twice with different results",
        "the same score (this device computes it in two ways: pass queries.float(), items.float(), no precision, and"
        " chunk_size=2**31)",
    ),
}


@constant
def no_errors(device: torch.device) -> Tensor:
    """Counters that are all zero, int64 [kind]."""
    return torch.zeros(len(Problem), dtype=torch.int64, device=device)


def count(kind: Problem, where: Tensor, ignored: Tensor | None = None, others: Tensor | None = None) -> Tensor:
    """Counters that hold the number of True in ``where`` under one kind, without host synchronisation.

    Args:
        kind: the kind of problem.
        where: bool [...]; together with ``ignored`` bool [query] or [query, column].
        ignored: bool [query], the queries that do not count.
        others: counters to be added. They are returned as they are if nothing is True, on the CPU.
    """
    if ignored is not None:
        where = where > (ignored if where.dim() == 1 else ignored.unsqueeze(-1))  # True and not ignored
    others = no_errors(where.device) if others is None else others
    if not possibly(where):
        return others
    return torch.addcmul(others, _one(kind, where.device), where.sum())


@constant
def _one(kind: Problem, device: torch.device) -> Tensor:
    """Counters that hold 1 under one kind."""
    return torch.tensor([int(one is kind) for one in Problem], dtype=torch.int64, device=device)


def explain(
    counters: Tensor,
    first: Callable[[Problem], int | None] = lambda kind: None,
    outside: Callable[[int], str] = lambda number: "",
) -> str:
    """Message with a clause for every kind that was counted; empty if there is none. Reads the counters on the host.

    Args:
        counters: int64 [kind].
        first: returns the number of the first query with a problem of a kind, or None if unknown.
        outside: returns a clause on the first index that is out of range, of a number of them, or "" if unknown.
    """
    found, clauses = [int(n) for n in counters.tolist()], []
    if found[Problem.DUPLICATE_IDS]:
        found[Problem.DUPLICATE_TARGETS] = 0  # both are integer scores with grades, and one message is enough
    for kind in (kind for kind in Problem if found[kind]):
        problem, expected = MEANING[kind]
        if kind is Problem.OUT_OF_RANGE and (named := outside(found[kind])):
            clauses.append(named)
            continue
        query = first(kind)
        where = "" if query is None else f", first in query {query}"
        words = (word.split("|")[found[kind] != 1] if "|" in word else word for word in problem.split())
        clauses.append(f"{found[kind]} {' '.join(filter(None, words))}{where}; expected {expected}")
    return "; ".join(clauses)


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


def integer_ids(ids: Tensor, name: str, other: str) -> Tensor:
    """Check that ids are integers that int64 can hold, and detach them.

    Args:
        ids: the ids.
        name: their name in an error.
        other: the name of the other argument in an error.
    """
    ids = check_tensor(ids, name)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        way_out = as_integers(ids, name) if name.isidentifier() else ""
        if other.startswith("integer preds"):
            way_out = (
                ". Integer preds are ids, never scores; if yours are scores of graded candidates, pass preds.float()"
            )
        raise TypeError(f"Expected {name} with {other} to hold integer ids, got {ids.dtype}{way_out}")
    if ids.dtype == torch.uint64:
        raise TypeError(
            f"Expected {name} with {other} to hold ids that int64 can hold, got {ids.dtype}; pass ids below 2**63"
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
        if target.shape == preds.shape and _whole(preds[:1]) and not _whole(target):
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
    """Whether all elements are known to be whole and finite numbers: on the CPU only, where they are read."""
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
        return f"{type(x).__name__} of {getattr(x, 'dtype', 'objects')}{_array_advice(x, name)}"
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
        kinds = {numpy.asarray(one).dtype.kind for one in x if len(one)}
        padding = False if kinds == {"b"} else "-torch.inf" if "f" in kinds else -1  # what means "no candidate"
        return (
            f"lists of {min(lengths)} to {max(lengths)} numbers; pass torch.nn.utils.rnn.pad_sequence("
            f"[torch.as_tensor(x) for x in {name}], True, {padding})"
        )
    return type(x).__name__


def _array_advice(x: Any, name: str) -> str:
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
        ids = name in ("target", "exclude") and isinstance(made, list) and all(hasattr(x, "__len__") for x in made)
        if made and (ids or isinstance(tensor_of(made), Tensor)):
            return f"; pass {name}.{method}()"
    try:
        return f"; pass numpy.asarray({name}, 'float64')" if numpy.asarray(x, "float64").size else ""
    except (TypeError, ValueError):
        return ""


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


# Number of columns of blocks of scores, until they are read.
UNKNOWN = 2**31


def judged_items(target: object, preds: Tensor, other: str, limit: int | None) -> tuple[Judged, Tensor]:
    """Check the judged items of each query and convert them; also returns counters of bad values.

    Args:
        target: int [query]; int [query, entry] padded with negatives; a list of Q id tensors; a (query, item) or
            (query, item, grade) tuple of 1-D tensors.
        preds: scores, embeddings or ids whose items are judged, [query, ...].
        other: the name of ``preds`` in an error.
        limit: all items must be smaller; None = any id.
    """
    num_queries, device, dense = preds.shape[0], preds.device, other.startswith("preds [Q, D]")
    errors = no_errors(device)
    if not isinstance(target, list | Tensor):
        target = tensor_of(_sparse_entries(target, "target", num_queries, limit))
    if isinstance(target, Tensor):
        check_tensor(target, "target")
    if isinstance(target, tuple):
        judged, errors = _judged_pairs(target, num_queries, device)
    elif isinstance(target, list):
        longest = max((len(x) for x in target if isinstance(x, list | numpy.ndarray)), default=0)
        if dense and longest and longest == limit:
            grades_of_lists = "torch.as_tensor(target)"
            if any(len(x) != longest for x in target):
                grades_of_lists = "pad_sequence([torch.as_tensor(x) for x in target], True), with a mask,"
            raise ValueError(
                f"Expected target to be grades or ids, got lists of {limit} numbers for {limit} candidates, which can"
                f" be both; pass {grades_of_lists} if they are grades, [torch.as_tensor(x) for x in target] if ids"
            )
        items, sizes = _id_lists(target, "target", num_queries, device)
        start = torch.tensor([0, *accumulate(sizes)], device="cpu")
        judged = Judged(items, torch.ones_like(items, dtype=torch.int8), start, ungraded=True)
    elif isinstance(target, Tensor) and target.shape[:1] == preds.shape[:1] and target.dim() in (1, 2):
        items = integer_ids(target, "target", other).to(device=device).long()
        # A label of -100 ignores its query, but in padded ids -100 is padding like any other negative.
        items = items.unsqueeze(-1) if items.dim() == 1 else items.clamp_min(-1)
        items = items if items.shape[1] else items.new_full((num_queries, 1), -1)
        judged = Judged.from_rows(items)
    else:
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else type_of(target, "target")
        hint = way_out(target, "target", preds) if isinstance(target, Tensor) else ""
        raise (ValueError if isinstance(target, Tensor) else TypeError)(
            f"Expected target with {other} to be {'grades of their shape, ' * dense}ids [{num_queries}], a list of"
            f" {num_queries} id tensors or a (query, item[, grade]) tuple, got {got}{hint}"
        )
    if limit is not None:
        outside, before = judged.items >= limit, errors
        errors = count(Problem.OUT_OF_RANGE, outside, others=before)
        if errors is not before:  # known to be equal on the CPU only
            judged = replace(judged, items=torch.where(outside, scalar(-1, torch.int64, device), judged.items))
    if (again := judged.again()) is not None:
        errors = count(Problem.DUPLICATE_TARGETS, again, others=errors)
    return judged, errors


def _id_lists(lists: list, name: str, num_queries: int, device: torch.device) -> tuple[Tensor, list[int]]:
    """Join the ids of a list with one tensor per query, int64 [id], and return the number of ids of each query."""
    tensors = list(map(tensor_of, lists))
    if len(lists) != num_queries or not _are_1d(tensors):
        raise ValueError(
            f"Expected {name} to be a list of {num_queries} 1-D id tensors, one per query, got a list of {len(lists)}"
            f" with {[shape_of(x) for x in lists[:3]]}{_to_ids(lists, name)}"
        )
    ids = [(integer_ids(x, f"the ids of {name}", "a list") if len(x) else x).to(device).long() for x in tensors]
    joined, sizes = torch.cat([torch.empty(0, dtype=torch.int64, device=device), *ids]), list(map(len, ids))
    if joined.is_cpu:
        _check_ids(joined, ids, sizes, name)
    return joined, sizes


def _check_ids(joined: Tensor, ids: list[Tensor], sizes: list[int], name: str) -> None:
    """Raise ValueError for rows of a 0/1 matrix, or pairs, in the place of a list with the ids of each query.

    Warns if the list can be ids as well as pairs.

    Args:
        joined: the ids of all queries, on the CPU.
        ids: the ids of each query.
        sizes: their numbers.
        name: the name of the list.
    """
    # Rows of a matrix are equally long, and three different ids are not all 0 or 1. The ids of one query may be what is
    # left of a cut batch, in which `score` looks for a target that is given twice.
    alike = len(set(sizes)) == 1 and (name == "exclude" or len(ids) > 1)
    if alike and sizes[0] > 2 and bool(((joined == 0) | (joined == 1)).all()):
        raise ValueError(
            f"Expected {name} to be a list of ids, got 0 and 1 alone, the rows of a matrix; pass"
            f" torch.stack([torch.as_tensor(x) for x in {name}]).nonzero(as_tuple=True)"
        )
    if len(ids) not in (2, 3) or len(set(sizes)) > 1 or ids[0].unique_consecutive().tolist() != [*range(len(ids))]:
        return
    # The first row has an id twice, or the queries of pairs. A pair may be excluded twice, but is a target only once.
    if sizes[0] > len(ids) and name == "target":
        raise ValueError(
            f"Expected {name} to be a list of ids, got (query, item) pairs, which DataLoader collation turns into a"
            f" list; pass tuple({name})"
        )
    if not ids[0].equal(ids[1]):
        warn(
            f"Read {name}, a list of {len(ids)} tensors for {len(ids)} queries, as the ids of each query; if they are"
            f" (query, item) pairs, which DataLoader collation turns into a list, pass tuple({name})"
        )


def _are_1d(tensors: Sequence[Any]) -> bool:
    return all(isinstance(x, Tensor) and not x.is_nested and x.dim() == 1 for x in tensors)


def _to_ids(lists: list, name: str) -> str:
    """Advice for an error on a list that has no ids for each query."""
    if any(isinstance(x, numpy.ma.MaskedArray) for x in lists):
        return f"; pass [numpy.ma.compressed(x) for x in {name}]"
    if any(isinstance(x, set | frozenset) for x in lists):
        return f"; pass [list(x) for x in {name}]"
    if not any(hasattr(x, "__len__") and shape_of(x) for x in lists):  # one number per query
        return f"; pass {'torch.as_tensor(target)' if name == 'target' else f'[[x] for x in {name}]'}"
    pairs = "(query, item) pairs, which DataLoader collation turns into a list"
    return f"; if they are {pairs}, pass tuple({name})" if len(lists) in (2, 3) else ""


def _judged_pairs(pairs: tuple, num_queries: int, device: torch.device) -> tuple[Judged, Tensor]:
    target = tuple(map(tensor_of, pairs))
    shapes = [shape_of(x) for x in target]
    if len(target) not in (2, 3) or not _are_1d(target):
        raise ValueError(f"Expected a (query, item) or (query, item, grade) tuple of 1-D tensors, got {shapes}")
    if len({len(x) for x in target}) != 1:
        raise ValueError(f"Expected the tensors of a (query, item[, grade]) tuple to be equally long, got {shapes}")
    query, item = (integer_ids(x, name, "a tuple").to(device).long() for x, name in zip(target, ("query", "item")))
    outside = (query < 0) | (query >= num_queries) | (item < 0)
    errors = count(Problem.OUT_OF_RANGE, outside)
    grade = torch.ones_like(item, dtype=torch.int8)
    if len(target) == 3:
        grade, bad = grades(check_tensor(target[2], "grades"), device, ~outside)
        errors = errors + bad
    # Pairs outside get the number after the last query, so that they are last and can be cut off.
    query, order = query.masked_fill(outside, num_queries), torch.arange(len(query), device=device)
    if possibly(query[1:] < query[:-1]):
        query, order = query.sort(stable=True)
    # The only target whose sizes depend on values, so the only one that waits for an accelerator.
    start = torch.searchsorted(query, torch.arange(num_queries + 1, device=device)).cpu()
    inside = order[: int(start[-1])]
    return Judged(item[inside], grade[inside], start, ungraded=len(target) == 2), errors


def _sparse_entries(x: Any, name: str, queries: int, limit: int | None) -> Any:
    """A sparse matrix of SciPy as a (query, item) or, for the target, (query, item, grade) tuple; else ``x`` itself.

    Elements that are stored more than once are summed, as SciPy does. The matrix has ``limit`` columns, if it is known.
    """
    if not hasattr(x, "tocsr"):
        return x
    if x.shape[0] != queries:
        raise ValueError(
            f"Expected {name} with {queries} rows, one per query, got a sparse matrix {list(x.shape)}; pass the rows of"
            f" the batch, as {name}[users]"
        )
    if limit is not None and limit < UNKNOWN and list(x.shape[1:]) != [limit]:
        raise ValueError(
            f"Expected {name} with {limit} columns, one per item, got a sparse matrix {list(x.shape)}; pass the columns"
            f" of these items, as {name}[:, items]"
        )
    entries = x.tocoo(copy=True)
    entries.sum_duplicates()
    if name == "exclude":
        return tuple(part[entries.data != 0] for part in (entries.row, entries.col))
    return entries.row, entries.col, entries.data


def excluded_pairs(exclude: object, preds: Tensor, catalogue: bool = True) -> tuple[Pairs | None, Tensor]:
    """Check the excluded pairs and convert them; also returns counters of bad values.

    For a catalogue, duplicates and out-of-range pairs are removed on the CPU, and get query -1 on an accelerator. For
    ranked ids, which have no range, only pairs with negative numbers or queries outside the batch get query -1.
    """
    if exclude is None:
        return None, no_errors(preds.device)
    query, item = given_pairs(exclude, "exclude", preds, preds.shape[1] if catalogue else None)
    outside = (query < 0) | (query >= preds.shape[0]) | (item < 0)
    outside = outside | (item >= preds.shape[1]) if catalogue else outside
    # Negative ids are padding in a list, but a mistake in a tuple of pairs.
    errors = count(Problem.OUT_OF_RANGE, outside & (item >= 0) if isinstance(exclude, list) else outside)
    if not catalogue:  # ids may be any numbers
        query, order = query.masked_fill(outside, -1).sort(stable=True)
        pairs = Pairs(query, item.masked_fill(outside, 0)[order])
        return pairs if preds.shape[0] else None, errors
    # Query and item in one integer, so that one sort finds duplicates. No matrix has 2 ** 32 columns.
    key = ascending((query * 2**32 + item).masked_fill(outside, -1))
    # The first of equal keys, but never the key -1.
    once = key.diff(prepend=scalar(-1, key.dtype, key.device).expand(1)) > 0
    pairs = Pairs.kept(key >> 32, key.clamp_min(0) & (2**32 - 1), once)
    return pairs if preds.shape[0] else None, errors


def given_pairs(x: object, name: str, preds: Tensor, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Queries and items of pairs, or of a list with the ids of each query, int64 [pair] each, in the given order."""
    queries, device = preds.shape[0], preds.device
    if isinstance(x, list):
        item, sizes = _id_lists(x, name, queries, device)
        repeats = torch.tensor(sizes, dtype=torch.int64, device="cpu")
        query = torch.arange(queries, device="cpu").repeat_interleave(repeats)
        return query.to(device, non_blocking=True), item
    x = tensor_of(_sparse_entries(x, name, queries, limit))
    pairs: Any = tuple(map(tensor_of, x)) if isinstance(x, tuple) else ()
    if len(pairs) != 2 or not _are_1d(pairs) or len(pairs[0]) != len(pairs[1]):
        got = [shape_of(one) for one in pairs] if pairs else type_of(x, name) if not isinstance(x, Tensor) else "Tensor"
        hint = way_out(x, name, preds) if isinstance(x, Tensor) else ""
        raise ValueError(
            f"Expected {name} to be a (query, item) tuple of equally long 1-D tensors, or a list of"
            f" {queries} 1-D id tensors, one per query, got {got}{hint}"
        )
    query, item = (integer_ids(one, name, "a tuple").to(device).long() for one in pairs)
    return query, item


def way_out(x: Tensor, name: str, preds: Tensor) -> str:
    """Advice for an error on a tensor in the place of pairs or of lists of ids. Reads values."""
    queries, whole = len(preds), not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
    if x.is_nested:
        return f"; pass list({name}.unbind())"
    if x.layout is not torch.strided:
        return f"; pass tuple({name}.to_sparse_coo().coalesce().indices())"
    if name == "exclude" and x.dim() == 1:
        for_all = f"{name if whole else f'{name}.nonzero().squeeze(-1)'}.expand({queries}, -1)"
        return f"; pass list({f'{name}.unsqueeze(-1)' if whole and len(x) == queries else for_all})"
    if x.dim() != 2:
        return ""
    if not whole and not as_integers(x, name).startswith("; pass"):
        return ""
    ids = name if whole else f"{name}.long()"
    if name == "target" and x.shape[1] == 1:
        return f"; pass {ids}.squeeze(1)"
    marks = name == "exclude" and len(x) == queries and bool(((x == 0) | (x == 1)).all())
    if marks and x.shape == preds.shape:
        return f"; pass {name}.nonzero(as_tuple=True)"
    matrix = marks and (not whole or x.shape[1] > 2)  # ids are different, so three of them are not all 0 or 1
    ways = {
        f"{name}.nonzero(as_tuple=True) if it is a matrix of 0 and 1": matrix,
        f"tuple({ids}) if its rows are queries and items": len(x) == 2,
        f"list({ids}) if its rows are the ids of each query": len(x) == queries and not matrix,
        f"tuple({ids}.T) if its columns are queries and items": x.shape[1] == 2 and not marks,
    }
    fitting = [way for way, fits in ways.items() if fits]
    return f"; pass {', or '.join(fitting)}" if fitting else ""
