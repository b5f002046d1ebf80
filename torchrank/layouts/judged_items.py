"""Conversion of judged items and excluded pairs from every form that a user can give to the canonical one."""

from __future__ import annotations

import functools
import operator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy
import torch
from torch import Tensor

from torchrank.hardware.constants import scalar
from torchrank.hardware.devices import every, reading_is_free
from torchrank.layouts.bad_values import Problem, count, no_errors
from torchrank.layouts.checks import bad_grades, check_tensor, grades, integer_ids, shape_of, type_of
from torchrank.layouts.items import JudgedItems, Padded, Pairs, Ragged


def judged_items(target: object, preds: Tensor, beside: str, limit: int | None) -> tuple[JudgedItems, Tensor]:
    """Check the judged items of each query and convert them; also returns counters of bad values.

    Args:
        target: int [query]; int [query, entry] padded with negatives; a list of Q id tensors; a (query, item) or
            (query, item, grade) tuple of 1-D tensors.
        preds: scores, embeddings or ids whose items are judged, [query, ...].
        beside: the name of ``preds`` in an error.
        limit: all items must be smaller; None = any id.
    """
    num_queries, device = preds.shape[0], preds.device
    errors: list[Tensor] = []
    judged: JudgedItems
    if isinstance(target, Tensor):
        check_tensor(target, "target")
    if isinstance(target, tuple):
        judged, bad = _of_pairs(target, num_queries, device)
        errors.append(bad)
    elif isinstance(target, list):
        judged = _of_lists(target, num_queries, device)
    elif isinstance(target, Tensor) and target.shape[:1] == preds.shape[:1] and target.dim() in (1, 2):
        items = integer_ids(target, "target", beside).to(device=device).long()
        # A label of -100 ignores its query, but in padded ids -100 is padding like any other negative.
        items = items.unsqueeze(-1) if items.dim() == 1 else items.clamp_min(-1)
        items = items if items.shape[1] else items.new_full((num_queries, 1), -1)
        judged = Padded(items, labels=items.shape[1] == 1)
    else:
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else type_of(target, "target")
        dense = "grades of their shape, " * beside.startswith("preds [Q, D]")
        raise (ValueError if isinstance(target, Tensor) else TypeError)(
            f"Expected target beside {beside} to be {dense}ids [{num_queries}], a list of {num_queries} id tensors or a"
            f" (query, item[, grade]) tuple, got {got}"
        )
    if limit is not None:
        outside = judged.items >= limit
        errors.append(count(Problem.OUT_OF_RANGE, outside))
        judged = replace(judged, items=torch.where(outside, scalar(-1, torch.int64, device), judged.items))
    if (again := judged.again()) is not None:
        errors.append(count(Problem.DUPLICATE_TARGETS, again))
    return judged, functools.reduce(operator.add, errors) if errors else no_errors(device)


def _of_lists(target: list, num_queries: int, device: torch.device) -> Ragged:
    items, sizes = _id_lists(target, "target", num_queries, device)
    start = torch.tensor([0, *accumulate(sizes)], device="cpu")
    return Ragged(items, torch.ones_like(items, dtype=torch.int8), start)


def _id_lists(lists: list, name: str, num_queries: int, device: torch.device) -> tuple[Tensor, list[int]]:
    """Join the ids of a list with one tensor per query, int64 [id], and return the number of ids of each query."""
    if len(lists) != num_queries or not all(isinstance(x, Tensor) and not x.is_nested and x.dim() == 1 for x in lists):
        raise ValueError(
            f"Expected {name} to be a list of {num_queries} 1-D id tensors, one per query, got a list of {len(lists)}"
            f" with {[shape_of(x) for x in lists[:3]]}; {_to_tensors(lists, name)}"
        )
    ids = [(integer_ids(x, f"the ids of {name}", "a list") if len(x) else x).to(device).long() for x in lists]
    return torch.cat([torch.empty(0, dtype=torch.int64, device=device), *ids]), [len(x) for x in lists]


def _to_tensors(lists: list, name: str) -> str:
    """Advice for an error on a list that is no list of id tensors."""
    if all(isinstance(x, Tensor) for x in lists):
        return f"if they are (query, item) pairs, which DataLoader collation turns into a list, pass tuple({name})"
    if not any(isinstance(x, Tensor) or hasattr(x, "__len__") for x in lists):  # one number per query
        return f"pass {'torch.as_tensor(target)' if name == 'target' else f'[torch.as_tensor([x]) for x in {name}]'}"
    grades = f"; if they are grades, pass torch.as_tensor({name})" * (name == "target")
    ids = "list(x)" if any(isinstance(x, set | frozenset) for x in lists) else "x"
    return f"if they are ids, pass [torch.as_tensor({ids}) for x in {name}]{grades}"


def _of_pairs(target: tuple, num_queries: int, device: torch.device) -> tuple[Ragged, Tensor]:
    shapes = [shape_of(x) for x in target]
    if len(target) not in (2, 3) or not all(isinstance(x, Tensor) and not x.is_nested and x.dim() == 1 for x in target):
        hint = "" if all(isinstance(x, Tensor) for x in target) else "; pass tuple(map(torch.as_tensor, target))"
        raise ValueError(f"Expected a (query, item) or (query, item, grade) tuple of 1-D tensors, got {shapes}{hint}")
    if len({len(x) for x in target}) != 1:
        raise ValueError(f"Expected the tensors of a (query, item[, grade]) tuple to be equally long, got {shapes}")
    query, item = (integer_ids(x, name, "a tuple").to(device).long() for x, name in zip(target, ("query", "item")))
    if len(target) == 3:
        check_tensor(target[2], "grades")
    grade = grades(target[2], device) if len(target) == 3 else torch.ones_like(item, dtype=torch.int8)
    outside = (query < 0) | (query >= num_queries) | (item < 0)
    errors = count(Problem.OUT_OF_RANGE, outside) + bad_grades(grade, ~outside)
    # Pairs outside get the number behind the last query, so that they stand last and can be cut off.
    query, order = query.masked_fill(outside, num_queries).sort(stable=True)
    sizes = torch.zeros(num_queries + 1, dtype=torch.int64, device=device)
    # The only target whose sizes depend on values, so the only one that waits for an accelerator.
    sizes = sizes.scatter_add_(0, query, torch.ones_like(query)).cpu()
    start = torch.nn.functional.pad(sizes[:-1].cumsum(0), (1, 0))
    order = order[: int(start[-1])]
    return Ragged(item[order], grade[order], start), errors


def excluded_pairs(exclude: object, preds: Tensor, catalogue: bool = True) -> tuple[Pairs | None, Tensor]:
    """Check the excluded pairs and convert them; also returns counters of bad values.

    For a catalogue, duplicates and out-of-range pairs are removed on the CPU, and get query -1 on an accelerator. For
    ranked ids, which have no range, only pairs with negative numbers or queries outside the batch get query -1.
    """
    if exclude is None:
        return None, no_errors(preds.device)
    query, item = _excluded(exclude, preds)
    if not catalogue:  # ids may be any numbers
        outside = (query < 0) | (query >= preds.shape[0]) | (item < 0)
        query, order = query.masked_fill(outside, -1).sort(stable=True)
        pairs = Pairs(query, item.masked_fill(outside, 0)[order])
        return pairs if preds.shape[0] else None, _out_of_range(exclude, outside, item)
    # Query and item in one integer, so that one sort finds duplicates. No matrix has 2 ** 32 columns.
    key, errors = query * 2**32 + item, no_errors(preds.device)
    free = reading_is_free(key)
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


def _excluded(exclude: object, preds: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and items of the excluded pairs, int64 [pair] each, in the given order."""
    queries, device = preds.shape[0], preds.device
    if isinstance(exclude, list):
        item, sizes = _id_lists(exclude, "exclude", queries, device)
        query = torch.repeat_interleave(
            torch.arange(queries, device="cpu"), torch.tensor(sizes, dtype=torch.int64, device="cpu")
        )
        return query.to(device, non_blocking=True), item
    pairs: Any = exclude if isinstance(exclude, tuple) else ()
    tensors = all(isinstance(x, Tensor) and not x.is_nested for x in pairs)
    if not tensors or [x.dim() for x in pairs] != [1, 1] or len(pairs[0]) != len(pairs[1]):
        got = [shape_of(x) for x in pairs] if pairs else type(exclude).__name__
        hint = "" if tensors else "; pass tuple(map(torch.as_tensor, exclude))"
        if isinstance(exclude, Tensor):
            hint = "; pass mask=~exclude" if exclude.dtype == torch.bool else "; pass list(exclude)"
        raise ValueError(
            "Expected exclude to be a (query, item) tuple of equally long 1-D tensors, or a list of"
            f" {queries} 1-D id tensors, one per query, got {got}{hint}"
        )
    query, item = (integer_ids(x, "exclude", "a tuple").to(device).long() for x in pairs)
    return query, item
