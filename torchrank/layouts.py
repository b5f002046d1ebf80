"""The first room: whatever layout the user has becomes a canonical one, checked.

Shapes and dtypes are checked here and raise at once. Values are counted on the device (see
:mod:`torchrank.problems`), because looking at them would make every ``update`` wait for the accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, chain
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from torchrank.lists import (
    PRODUCT,
    CatalogueLists,
    DenseLists,
    EmbeddedLists,
    FlatRows,
    Judged,
    Lists,
    Padded,
    Pairs,
    Ragged,
    RankedIds,
    StreamedLists,
    as_given,
)
from torchrank.problems import Problem, count, no_errors

# In which torch compares: neither 8 bits of floating point nor fewer bits of anything.
_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64),
)

# Integers up to this one are exact as float64.
MOST = 2**53


def arrange(
    preds: Tensor,
    target: object,
    *,
    mask: Tensor | None = None,
    indexes: Tensor | None = None,
    exclude: object = None,
    tie_break: Tensor | None = None,
    validate: bool = True,
) -> Lists:
    """Recognise the layout by shapes and dtypes, check it, and make it canonical.

    Raises:
        TypeError: an argument has a type or dtype that no layout has.
        ValueError: shapes or devices do not fit together.
    """
    check_tensor(preds, "preds", "a tensor of scores or ids or a Ranking")
    preds = preds.detach()
    if isinstance(target, Tensor):
        check_tensor(target, "target")
        _refuse_exchanged(preds, target)
    if tie_break is not None:
        check_tensor(tie_break, "tie_break")
        tie_break = _comparable(tie_break)
    if preds.is_complex() or preds.dtype == torch.bool:
        raise TypeError(f"Expected preds to be floating point scores or integer ids, got {preds.dtype}")
    if preds.dim() == 1 or indexes is not None:
        return _flat(preds, target, indexes, mask, exclude, tie_break, validate)
    if preds.dim() != 2:
        raise ValueError(
            "Expected preds of shape [query, candidate], or [row] together with indexes,"
            f" got shape {list(preds.shape)}; further dimensions can be flattened, as by preds.flatten(0, -2)"
        )
    if not preds.is_floating_point():
        return _ranked_ids(preds, target, mask, exclude, tie_break, validate)
    _check_grid(mask, "mask", preds, dtype=torch.bool)
    if isinstance(tie_break, Tensor) and tie_break.shape == preds.shape[1:]:
        tie_break = tie_break.expand_as(preds)
    _check_grid(tie_break, "tie_break", preds, also=f" or {list(preds.shape[1:])}")
    if isinstance(target, Tensor) and target.dim() in (2, 3):
        return _dense(preds, target, mask, exclude, tie_break, validate)
    judged, errors = judged_items(target, preds, "preds [Q, D] of scores", limit=preds.shape[1])
    errors = errors + _bad_tie_break(tie_break, mask, preds, judged.ignored)
    pairs, bad = _pairs(exclude, preds)
    if not preds.shape[1]:
        preds, tie_break = _one_column(preds), None
        mask = torch.zeros_like(preds, dtype=torch.bool)  # and no candidate in it
    return CatalogueLists(errors + bad, validate, preds, judged, _on(preds, mask), _on(preds, tie_break), pairs)


def _dense(
    preds: Tensor, target: Tensor, mask: Tensor | None, exclude: object, tie_break: Tensor | None, validate: bool
) -> DenseLists:
    if target.shape[:2] != preds.shape or 0 in target.shape[2:]:
        raise ValueError(
            f"Expected target of preds' shape {list(preds.shape)} (a grade per candidate), with one more dimension (a"
            f" grade per candidate and subtopic), or [{preds.shape[0]}] (the column of the positive), a (query, item)"
            f" tuple or a list of {preds.shape[0]} id tensors, got shape {list(target.shape)}; padded ids beside scores"
            " are list(target)"
        )
    grade = grades(target, preds.device)
    subtopics = grade if grade.dim() == 3 else None
    errors = _bad_grades(grade, mask) + _bad_tie_break(tie_break, mask, preds)
    pairs, bad = _pairs(exclude, preds)
    grade = grade if subtopics is None else grade.amax(-1)
    if not preds.shape[1]:
        preds, grade, tie_break = _one_column(preds), grade.new_zeros((len(grade), 1)), None
        mask = torch.zeros_like(preds, dtype=torch.bool)
        subtopics = None if subtopics is None else subtopics.new_zeros((len(preds), 1, subtopics.shape[2]))
    on = (_on(preds, mask), _on(preds, tie_break))
    return DenseLists(errors + bad, validate, preds, grade, *on, pairs, subtopics)


def _flat(
    preds: Tensor,
    target: Any,
    indexes: Tensor | None,
    mask: Tensor | None,
    exclude: object,
    tie_break: Tensor | None,
    validate: bool,
) -> FlatRows:
    if indexes is None:
        raise ValueError(
            f"Expected indexes [{preds.shape[0]}] naming the query of each row of preds, got None;"
            " a single query is preds.unsqueeze(0), target.unsqueeze(0)"
        )
    if preds.dim() != 1:
        raise ValueError(f"Expected flat preds [row] together with indexes, got preds of shape {list(preds.shape)}")
    if not preds.is_floating_point():
        raise TypeError(f"Expected floating point scores in flat rows, got {preds.dtype}; integer preds are ranked ids")
    if exclude is not None:
        raise ValueError("Expected no exclude for flat rows: leave the rows out, or give mask [row]; got exclude")
    _check_grid(target, "target", preds)
    _check_grid(indexes, "indexes", preds)
    _check_grid(mask, "mask", preds, dtype=torch.bool)
    _check_grid(tie_break, "tie_break", preds)
    if indexes.is_floating_point() or indexes.is_complex() or indexes.dtype in (torch.bool, torch.uint64):
        raise TypeError(f"Expected integer indexes that int64 can hold, got {indexes.dtype}")
    grade = grades(target, preds.device)
    errors = _bad_grades(grade, mask) + _bad_tie_break(tie_break, mask, preds)
    indexes = _comparable(indexes.detach().to(preds.device))
    return FlatRows(errors, validate, preds, grade, indexes, _on(preds, mask), _on(preds, tie_break))


def _ranked_ids(
    ids: Tensor, target: object, mask: Tensor | None, exclude: object, tie_break: Tensor | None, validate: bool
) -> RankedIds:
    if tie_break is not None:
        raise ValueError("Expected no tie_break for integer preds, which are ids already ranked; got tie_break")
    _check_grid(mask, "mask", ids, dtype=torch.bool)
    ids = _integer(ids, "preds", "target")
    judged, errors = judged_items(target, ids, "integer preds (ids, best first)", limit=None)
    pairs, bad = _pairs(exclude, ids, catalogue=False)
    if not ids.shape[1]:
        ids, mask = ids.new_full((ids.shape[0], 1), -1), None
    return RankedIds(errors + bad, validate, ids.long(), judged, _on(ids, mask), pairs)


def embedded(
    queries: Tensor,
    catalogue: Tensor,
    relevant: object,
    exclude: object,
    similarity: str,
    chunk_size: int | None,
    shard: Callable[[int, int], Any] | None,
    progress: Callable[[int], None] | None,
) -> EmbeddedLists:
    """Check embeddings [query, dimension] and [item, dimension] and make them canonical.

    Arguments as :meth:`torchrank.Ranking.from_embeddings`; ``shard`` leads from the numbers of items and of queries to
    this worker's part of the catalogue, and None means that all of it is here.
    """
    for name, x in (("queries", queries), ("items", catalogue)):
        check_tensor(x, name, "a floating point tensor")
        if not x.is_floating_point():
            raise TypeError(f"Expected {name} to be a floating point tensor, got {x.dtype}")
    if queries.dim() != 2 or catalogue.dim() != 2 or queries.shape[1] != catalogue.shape[1]:
        raise ValueError(
            "Expected queries [query, dimension] and items [item, dimension] of one dimension, got shapes"
            f" {list(queries.shape)} and {list(catalogue.shape)}"
        )
    if queries.dtype != catalogue.dtype or queries.device != catalogue.device:
        raise ValueError(
            "Expected queries and items of one dtype on one device, got"
            f" {queries.dtype} on {queries.device} and {catalogue.dtype} on {catalogue.device}"
        )
    if similarity not in ("dot", "cosine"):
        raise ValueError(f"Expected similarity to be 'dot' or 'cosine', got {similarity!r}")
    chunk_size = integer("chunk_size", chunk_size, least=1)
    queries, catalogue = queries.detach(), catalogue.detach()
    if similarity == "cosine":
        with as_given(queries.device):
            queries, catalogue = (torch.nn.functional.normalize(x, dim=-1) for x in (queries, catalogue))
    part = None if shard is None else shard(len(catalogue), len(queries))
    offset, total, longest = (0, *[len(catalogue)] * 2) if part is None else (part.offset, part.total, part.longest)
    grid = queries.new_empty(1).expand(len(queries), max(1, total))  # a shape to check against, no memory
    judged, errors = judged_items(relevant, grid, "queries [Q, dimension]", limit=total)
    pairs, bad = _pairs(exclude, grid)
    chunk = max(1, min(chunk_size or _chunk(longest, queries.device), longest))
    return EmbeddedLists(
        errors + bad, True, queries, catalogue, judged, chunk, pairs, offset, max(1, total), part, progress
    )


def _chunk(items: int, device: torch.device) -> int:
    """Items to score at a time: on a CPU so few that the scores stay in its cache, elsewhere whole rows if possible."""
    if device.type == "cpu" and items > 2**14:
        return 2**12
    return min(items, PRODUCT // 16)


def streamed(blocks: object, relevant: object, exclude: object, top_k: int | None) -> StreamedLists:
    """Check an iterable of score blocks [query, item], or a function that gives one, and make it canonical."""
    if not callable(blocks) and not isinstance(blocks, Iterable):
        raise TypeError(f"Expected blocks to be an iterable of score blocks or a function, got {type(blocks).__name__}")
    source = blocks if callable(blocks) else lambda: blocks
    again = callable(blocks) or iter(blocks) is not blocks
    if not again and top_k is None:
        raise ValueError(
            "Expected blocks that can be read twice (a list, a function that returns an iterator), or top_k: got an"
            f" iterator, {type(blocks).__name__}, in whose first reading the scores of the relevant are not yet known"
        )
    ahead = iter(source())
    first = next(ahead, None)
    if first is None:
        raise ValueError("Expected at least one block of scores [query, item], got none")
    first = _checked_block(first, first)
    begun = [chain([first], ahead)]  # the first reading goes on from here

    def read() -> Iterator[Tensor]:
        for block in begun.pop() if begun else source():
            yield _checked_block(block, first)

    # Items are checked against the number of columns once it is known.
    grid = first.new_empty(1).expand(len(first), 2**31)
    judged, errors = judged_items(relevant, grid, "blocks [Q, item] of scores", limit=2**31)
    pairs, bad = _pairs(exclude, grid)
    return StreamedLists(errors + bad, True, read, judged, first.dtype, again, pairs)


def _checked_block(block: object, first: Tensor) -> Tensor:
    check_tensor(block, "each of blocks", "a floating point tensor")
    assert isinstance(block, Tensor)
    if not block.is_floating_point():
        raise TypeError(f"Expected blocks of floating point scores, got {block.dtype}")
    if block.dim() != 2 or first.dim() != 2 or len(block) != len(first) or block.dtype != first.dtype:
        raise ValueError(
            "Expected blocks of scores [query, item] of the same queries and one dtype, got"
            f" {list(block.shape)} {block.dtype} after {list(first.shape)} {first.dtype}"
        )
    return block.detach()


def judged_items(target: object, preds: Tensor, beside: str, limit: int | None) -> tuple[Judged, Tensor]:
    """The judged items of each query, and error counters.

    Args:
        target: int [query]; int [query, entry] padded with negatives; a list of Q id tensors; a (query, item) or
            (query, item, grade) tuple of 1-D tensors.
        preds: what the items refer to, [query, ...].
        beside: how an error calls ``preds``.
        limit: items are smaller than this; None = any id.
    """
    num_queries, device = preds.shape[0], preds.device
    errors = no_errors(device)
    judged: Judged
    if isinstance(target, Tensor):
        check_tensor(target, "target")
    if isinstance(target, tuple):
        judged, errors = _of_pairs(target, num_queries, device)
    elif isinstance(target, list):
        judged = _of_lists(target, num_queries, device)
    elif isinstance(target, Tensor) and target.shape[:1] == preds.shape[:1] and target.dim() in (1, 2):
        items = _integer(target, "target", beside).to(device=device).long()
        items = items.unsqueeze(-1) if items.dim() == 1 else items.clamp_min(-1)  # padding is no IGNORED label
        items = items if items.shape[1] else items.new_full((num_queries, 1), -1)
        judged = Padded(items, torch.ones_like(items, dtype=torch.int8))
    else:
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else _type_of(target, "target")
        dense = "grades of their shape, " * beside.startswith("preds [Q, D]")
        raise (ValueError if isinstance(target, Tensor) else TypeError)(
            f"Expected target beside {beside} to be {dense}ids [{num_queries}], a list of {num_queries} id tensors or a"
            f" (query, item[, grade]) tuple, got {got}"
        )
    if limit is not None:
        outside = judged.items >= limit
        errors = errors + count(Problem.OUT_OF_RANGE, outside)
        judged = replace(judged, items=judged.items.masked_fill(outside, -1))
    return judged, errors + count(Problem.DUPLICATE_TARGETS, judged.again())


def _of_lists(target: list, num_queries: int, device: torch.device) -> Ragged:
    items, sizes = _id_lists(target, "target", num_queries, device)
    start = torch.tensor([0, *accumulate(sizes)], device="cpu")
    return Ragged(items, torch.ones_like(items, dtype=torch.int8), start)


def _id_lists(lists: list, name: str, num_queries: int, device: torch.device) -> tuple[Tensor, list[int]]:
    """The ids of a list with a tensor for each query, one query after the other, and how many each has."""
    if len(lists) != num_queries or not all(isinstance(x, Tensor) and not x.is_nested and x.dim() == 1 for x in lists):
        raise ValueError(
            f"Expected {name} to be a list of {num_queries} 1-D id tensors, one per query, got a list of {len(lists)}"
            f" with {[_shape(x) for x in lists[:3]]}; {_to_tensors(lists, name)}"
        )
    ids = [(_integer(x, f"the ids of {name}", "a list") if len(x) else x).to(device).long() for x in lists]
    return torch.cat([torch.empty(0, dtype=torch.int64, device=device), *ids]), [len(x) for x in lists]


def _to_tensors(lists: list, name: str) -> str:
    """The way out of a list that is no list of id tensors."""
    if all(isinstance(x, Tensor) for x in lists):
        return f"if they are (query, item) pairs, which DataLoader collation turns into a list, pass tuple({name})"
    if not any(isinstance(x, Tensor) or hasattr(x, "__len__") for x in lists):  # one number per query
        return f"pass {'torch.as_tensor(target)' if name == 'target' else f'[torch.as_tensor([x]) for x in {name}]'}"
    grades = f"; if they are grades, pass torch.as_tensor({name})" * (name == "target")
    return f"if they are ids, pass [torch.as_tensor(x) for x in {name}]{grades}"


def _of_pairs(target: tuple, num_queries: int, device: torch.device) -> tuple[Ragged, Tensor]:
    shapes = [_shape(x) for x in target]
    if len(target) not in (2, 3) or not all(isinstance(x, Tensor) and not x.is_nested and x.dim() == 1 for x in target):
        hint = "" if all(isinstance(x, Tensor) for x in target) else "; pass tuple(map(torch.as_tensor, target))"
        raise ValueError(f"Expected a (query, item) or (query, item, grade) tuple of 1-D tensors, got {shapes}{hint}")
    if len({len(x) for x in target}) != 1:
        raise ValueError(f"Expected the tensors of a (query, item[, grade]) tuple to be equally long, got {shapes}")
    query, item = (_integer(x, name, "a tuple").to(device).long() for x, name in zip(target, ("query", "item")))
    grade = grades(target[2], device) if len(target) == 3 else torch.ones_like(item, dtype=torch.int8)
    outside = (query < 0) | (query >= num_queries) | (item < 0)
    errors = count(Problem.OUT_OF_RANGE, outside) + _bad_grades(grade, ~outside)
    query, order = query.masked_fill(outside, num_queries).sort(stable=True)
    sizes = torch.zeros(num_queries + 1, dtype=torch.int64, device=device)
    sizes = sizes.scatter_add_(0, query, torch.ones_like(query)).cpu()  # the one layout whose sizes are in its values
    start = torch.nn.functional.pad(sizes[:-1].cumsum(0), (1, 0))
    order = order[: int(start[-1])]  # those outside stand behind all others
    return Ragged(item[order], grade[order], start), errors


def grades(target: Tensor, device: torch.device) -> Tensor:
    """Relevance grades as they came, bool as int8 (grades are subtracted and sorted)."""
    check_tensor(target, "grades")
    if target.is_complex() or target.dtype in (torch.uint16, torch.uint32, torch.uint64):
        hint = "" if target.is_complex() else ", with which torch compares nothing: pass target.long()"
        raise TypeError(f"Expected grades to be integer, bool or floating point, got {target.dtype}{hint}")
    target = target.detach().to(device)
    return target.to(torch.int8) if target.dtype == torch.bool else target


def _bad_tie_break(
    tie_break: Tensor | None, mask: Tensor | None, preds: Tensor, ignored: Tensor | None = None
) -> Tensor:
    if tie_break is None or not tie_break.is_floating_point():
        return no_errors(preds.device)
    bad = tie_break.to(preds.device).isnan()
    bad = bad if mask is None else bad & mask.to(preds.device)
    return count(Problem.NAN_SCORES, bad.any(-1) if bad.dim() > 1 else bad, ignored)


def _bad_grades(grade: Tensor, where: Tensor | None) -> Tensor:
    looks = grade.device.type == "cpu" and grade.numel() > 0  # where looking at values costs nothing
    if not grade.is_floating_point() or (looks and all(map(math.isfinite, torch.stack(grade.aminmax()).tolist()))):
        return no_errors(grade.device)
    bad = ~grade.isfinite()
    if where is not None:
        where = where.to(bad.device)
        bad = bad & (where.unsqueeze(-1) if bad.dim() > where.dim() else where)
    return count(Problem.BAD_GRADES, bad)


def _pairs(exclude: object, preds: Tensor, catalogue: bool = True) -> tuple[Pairs | None, Tensor]:
    """The excluded pairs, of a catalogue each once; those outside get query -1, which nobody has, or are gone."""
    if exclude is None:
        return None, no_errors(preds.device)
    query, item = _excluded(exclude, preds)
    # A list is padded with negatives, as that of targets; a pair with them is a mistake.
    padding = item < 0 if isinstance(exclude, list) else torch.zeros_like(item, dtype=torch.bool)
    outside = (query < 0) | (query >= preds.shape[0]) | (item < 0)
    if not catalogue:  # ids may be any numbers
        query, order = query.masked_fill(outside, -1).sort(stable=True)
        pairs = Pairs(query, item.masked_fill(outside, 0)[order])
        return pairs if preds.shape[0] else None, count(Problem.OUT_OF_RANGE, outside & ~padding)
    outside = outside | (item >= preds.shape[1])
    key = (query * 2**32 + item).masked_fill(outside, -1).sort().values  # no matrix has that many columns
    once = key >= 0
    once[1:] &= key[1:] != key[:-1]
    key = key[once] if key.device.type == "cpu" else key.masked_fill(~once, -1)  # removing them would sync
    pairs = Pairs(key >> 32, torch.where(key < 0, 0, key & (2**32 - 1)))
    return pairs if preds.shape[0] else None, count(Problem.OUT_OF_RANGE, outside & ~padding)


def _excluded(exclude: object, preds: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and items of the excluded pairs, int64 [pair] each, as they were given."""
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
        got = [_shape(x) for x in pairs] if pairs else type(exclude).__name__
        hint = "" if tensors else "; pass tuple(map(torch.as_tensor, exclude))"
        if isinstance(exclude, Tensor):
            hint = "; pass mask=~exclude" if exclude.dtype == torch.bool else "; pass list(exclude)"
        raise ValueError(
            "Expected exclude to be a (query, item) tuple of equally long 1-D tensors, or a list of"
            f" {queries} 1-D id tensors, one per query, got {got}{hint}"
        )
    query, item = (_integer(x, "exclude", "a tuple").to(device).long() for x in pairs)
    return query, item


def _integer(ids: Tensor, name: str, beside: str) -> Tensor:
    check_tensor(ids, name)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        hint = ". Integer preds are ids, never scores: if yours are scores of graded candidates, pass preds.float()"
        raise TypeError(
            f"Expected {name} beside {beside} to hold integer ids, got {ids.dtype}"
            + hint * beside.startswith("integer preds")
        )
    if ids.dtype == torch.uint64:
        raise TypeError(
            f"Expected {name} beside {beside} to hold ids that int64 can hold, got {ids.dtype}; pass ids below 2**63"
            " as int64"
        )
    return ids.detach()


def _refuse_exchanged(preds: Tensor, target: Tensor) -> None:
    """TypeError for labels in the place of scores, and scores in that of labels."""
    if preds.is_floating_point() or preds.is_complex() or not target.is_floating_point():
        return
    if target.shape == preds.shape:
        # Integer scores of float grades have another way out, so values decide; there is an error in any case.
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


def integer(argument: str, value: object, least: int, or_none: bool = True, most: int = MOST) -> int | None:
    """An argument as a Python int; None where that will do.

    Raises:
        ValueError: it is no integer, of Python or of numpy, or out of its bounds.
    """
    if value is None and or_none:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        bound = f"<= {most}" if isinstance(value, Integral) and int(value) > most else f">= {least}"
        also = " or None" if or_none else ""
        raise ValueError(f"Expected {argument} to be an integer {bound}{also}, got {value!r}")
    return int(value)


def check_tensor(x: object, name: str, wanted: str = "a tensor") -> None:
    """Raise TypeError unless an argument is a dense tensor of a dtype with which torch computes."""
    if not isinstance(x, Tensor):
        raise TypeError(f"Expected {name} to be {wanted}, got {_type_of(x, name)}")
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
    if x.dtype not in _DTYPES and not x.is_complex():
        raise TypeError(f"Expected {name} in a dtype that torch compares, got {x.dtype}; pass it as .float()")


def _type_of(x: object, name: str) -> str:
    """The type of an argument that is no tensor, and how to make it one."""
    hint = f"; pass torch.as_tensor({name})" if isinstance(x, list | tuple) or hasattr(x, "__array__") else ""
    return type(x).__name__ + hint


def _shape(x: object) -> object:
    """The shape of a tensor, or the type of anything else, for an error."""
    if not isinstance(x, Tensor):
        return type(x).__name__
    return "nested" if x.is_nested else list(x.shape)


def _check_grid(x: object, name: str, preds: Tensor, dtype: torch.dtype | None = None, also: str = "") -> None:
    if x is None and name != "target":
        return
    check_tensor(x, name, wanted := "a bool tensor" if dtype is torch.bool else "a tensor")
    assert isinstance(x, Tensor)
    if dtype is not None and x.dtype != dtype:
        raise TypeError(f"Expected {name} to be {wanted}, got {x.dtype}")
    if x.shape != preds.shape:
        raise ValueError(f"Expected {name} of preds' shape {list(preds.shape)}{also}, got {list(x.shape)}")


def _comparable(x: Tensor) -> Tensor:
    """In a dtype with which torch can do all that is to be done."""
    return x.long() if x.dtype in (torch.uint16, torch.uint32) else x


def _on(preds: Tensor, x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().to(preds.device)


def _one_column(preds: Tensor) -> Tensor:
    """Lists without any candidate, as one column of which nothing was retrieved: no engine meets an empty row."""
    return preds.new_full((preds.shape[0], 1), float("-inf"))
