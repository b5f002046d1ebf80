"""Conversion of judged items and excluded pairs from every form that a user can give to the canonical one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import every, scalar
from torchrank.layouts.bad_values import Problem, count, no_errors
from torchrank.layouts.checks import as_integers, check_tensor, grades, integer_ids, shape_of, tensor_of, type_of
from torchrank.layouts.items import JudgedItems, Padded, Pairs, Ragged
from torchrank.names.arguments import warn

# Number of columns of blocks of scores, until they are read.
UNKNOWN = 2**31


def judged_items(target: object, preds: Tensor, beside: str, limit: int | None) -> tuple[JudgedItems, Tensor]:
    """Check the judged items of each query and convert them; also returns counters of bad values.

    Args:
        target: int [query]; int [query, entry] padded with negatives; a list of Q id tensors; a (query, item) or
            (query, item, grade) tuple of 1-D tensors.
        preds: scores, embeddings or ids whose items are judged, [query, ...].
        beside: the name of ``preds`` in an error.
        limit: all items must be smaller; None = any id.
    """
    num_queries, device, dense = preds.shape[0], preds.device, beside.startswith("preds [Q, D]")
    errors = no_errors(device)
    judged: JudgedItems
    target = (
        target if isinstance(target, list | Tensor) else tensor_of(_of_sparse(target, "target", num_queries, limit))
    )
    if isinstance(target, Tensor):
        check_tensor(target, "target")
    if isinstance(target, tuple):
        judged, errors = _of_pairs(target, num_queries, device)
    elif isinstance(target, list):
        longest = max((len(x) for x in target if isinstance(x, list | numpy.ndarray)), default=0)
        if dense and longest and longest == limit:
            alike = all(len(x) == longest for x in target)
            grades_of_lists = (
                "torch.as_tensor(target)"
                if alike
                else "pad_sequence([torch.as_tensor(x) for x in target], True), with a mask,"
            )
            raise ValueError(
                f"Expected target to be grades or ids, got lists of {limit} numbers for {limit} candidates, which can"
                f" be both; pass {grades_of_lists} if they are grades, [torch.as_tensor(x) for x in target] if ids"
            )
        judged = _of_lists(target, num_queries, device)
    elif isinstance(target, Tensor) and target.shape[:1] == preds.shape[:1] and target.dim() in (1, 2):
        items = integer_ids(target, "target", beside).to(device=device).long()
        # A label of -100 ignores its query, but in padded ids -100 is padding like any other negative.
        items = items.unsqueeze(-1) if items.dim() == 1 else items.clamp_min(-1)
        items = items if items.shape[1] else items.new_full((num_queries, 1), -1)
        judged = Padded(items, labels=items.shape[1] == 1)
    else:
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else type_of(target, "target")
        hint = way_out(target, "target", preds) if isinstance(target, Tensor) else ""
        raise (ValueError if isinstance(target, Tensor) else TypeError)(
            f"Expected target with {beside} to be {'grades of their shape, ' * dense}ids [{num_queries}], a list of"
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


def _of_lists(target: list, num_queries: int, device: torch.device) -> Ragged:
    items, sizes = _id_lists(target, "target", num_queries, device)
    start = torch.tensor([0, *accumulate(sizes)], device="cpu")
    return Ragged(items, torch.ones_like(items, dtype=torch.int8), start)


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
    if alike and sizes[0] > 2 and _below(joined, 2):
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


def _of_pairs(pairs: tuple, num_queries: int, device: torch.device) -> tuple[Ragged, Tensor]:
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
    # Pairs outside get the number behind the last query, so that they stand last and can be cut off.
    query, order = query.masked_fill(outside, num_queries), None
    if not query.is_cpu or bool((query[1:] < query[:-1]).any()):
        query, order = query.sort(stable=True)
    sizes = torch.zeros(num_queries + 1, dtype=torch.int64, device=device)
    # The only target whose sizes depend on values, so the only one that waits for an accelerator.
    sizes = sizes.scatter_add_(0, query, torch.ones_like(query)).cpu()
    start = torch.nn.functional.pad(sizes[:-1].cumsum(0), (1, 0))
    inside: slice | Tensor = slice(0, int(start[-1]))
    inside = inside if order is None else order[inside]
    return Ragged(item[inside], grade[inside], start), errors


def _of_sparse(x: Any, name: str, queries: int, limit: int | None) -> Any:
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
    if not catalogue:  # ids may be any numbers
        outside = (query < 0) | (query >= preds.shape[0]) | (item < 0)
        query, order = query.masked_fill(outside, -1).sort(stable=True)
        pairs = Pairs(query, item.masked_fill(outside, 0)[order])
        return pairs if preds.shape[0] else None, _out_of_range(exclude, outside, item)
    # Query and item in one integer, so that one sort finds duplicates. No matrix has 2 ** 32 columns.
    key, errors = query * 2**32 + item, no_errors(preds.device)
    free = key.is_cpu
    if not (free and _below(query, preds.shape[0]) and _below(item, preds.shape[1])):
        outside = (query < 0) | (query >= preds.shape[0]) | (item < 0) | (item >= preds.shape[1])
        key, errors = key.masked_fill_(outside, -1), _out_of_range(exclude, outside, item)
    if free:
        key.numpy().sort()  # in half the time of torch
    else:
        key = key.sort().values
    # The first of equal keys, but never the key -1.
    once = key.diff(prepend=scalar(-1, key.dtype, key.device).expand(1)) > 0
    if not free:  # removing would wait for the device
        key = key.masked_fill(~once, -1)
    elif not every(once):
        key = key[once]
    pairs = Pairs(key >> 32, (key if free else key.clamp_min(0)) & (2**32 - 1))
    return pairs if preds.shape[0] else None, errors


def _below(x: Tensor, stop: int) -> bool:
    """Whether all integers of a tensor on the CPU are >= 0 and < ``stop``."""
    # As unsigned numbers, negative ones are above all others.
    return not x.numel() or int(x.numpy().view(numpy.uint64).max()) < stop


def _out_of_range(exclude: object, outside: Tensor, item: Tensor) -> Tensor:
    """Counters of pairs out of range. Negative ids are padding in a list, but a mistake in a tuple of pairs."""
    return count(Problem.OUT_OF_RANGE, outside & (item >= 0) if isinstance(exclude, list) else outside)


def given_pairs(x: object, name: str, preds: Tensor, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Queries and items of pairs, or of a list with the ids of each query, int64 [pair] each, in the given order."""
    queries, device = preds.shape[0], preds.device
    if isinstance(x, list):
        item, sizes = _id_lists(x, name, queries, device)
        query = torch.repeat_interleave(
            torch.arange(queries, device="cpu"), torch.tensor(sizes, dtype=torch.int64, device="cpu")
        )
        return query.to(device, non_blocking=True), item
    x = tensor_of(_of_sparse(x, name, queries, limit))
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
