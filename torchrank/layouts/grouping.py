"""Layouts of groups: chunks of one document, or variants of one product, are ranked as one candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware.devices import multiplying, put
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.canonical import (
    BLOCK,
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Layout,
    RankedIds,
    StreamedLayout,
)
from torchrank.layouts.checks import integer_ids, tensor_of, type_of
from torchrank.layouts.items import IGNORED, JudgedItems, Padded, Ragged
from torchrank.layouts.ranked_ids import listed_ids, removed, repeated, spread, spread_lists


def grouped(layout: Layout, groups: Any, all_candidates: bool = False) -> Layout:
    """Convert a layout of candidates to one of groups.

    A group has the score of its best candidate and the largest grade of its candidates. If some of these are judged
    and others are not, the grade of the group is a lower bound, and the group is marked as partly judged.

    Args:
        layout: scores, embeddings, blocks of scores, flat rows or ranked ids.
        groups: int [candidate] or [query, candidate] with scores, [item] with embeddings and blocks, [row] with flat
            rows, [id] with ids: equal for candidates of one group; negative = a group of one.
        all_candidates: whether candidates that a layout does not name will be read, as unjudged ones. Then groups of
            scores and ids are dense lists.

    Raises:
        TypeError, ValueError: groups are not integers, or have another shape.
    """
    if not isinstance(groups := tensor_of(groups), Tensor):
        got = type_of(groups, "groups")
        got = got if "; pass" in got else f"{got}; pass numpy.unique(groups, return_inverse=True)[1]"
        raise TypeError(f"Expected groups to be integers, got {got}")
    groups = integer_ids(groups, "groups", "preds").to(layout.errors.device).long()
    if isinstance(layout, RankedIds):
        fits = groups.dim() == 1 and groups.numel() > 0
        return _of_ids(layout, _checked(groups, "[id], the group of each id", fits), all_candidates)
    if isinstance(layout, FlatRows):
        shape = [len(layout.scores)]
        way_out = f"{shape}, the group of each row (sizes of queries are group_sizes)"
        return _of_rows(layout, _checked(groups, way_out, list(groups.shape) == shape))
    if isinstance(layout, EmbeddedLayout):
        shape = [len(layout.catalogue)]
        return _of_embeddings(layout, _checked(groups, f"{shape}, the group of each item", list(groups.shape) == shape))
    if isinstance(layout, StreamedLayout):
        of_all = _checked(groups, "[item], the group of each item of all blocks", groups.dim() == 1 and len(groups) > 0)
        return _of_blocks(layout, of_all, torch.arange(len(of_all), device=of_all.device))
    assert isinstance(layout, DenseLayout | CatalogueLayout)
    queries, candidates = layout.scores.shape
    # A batch without candidates has one column of padding.
    fits = groups.shape in ((candidates,), (queries, candidates)) or (not groups.numel() and candidates == 1)
    groups = _checked(groups, f"[{candidates}] or {[queries, candidates]}, the group of each candidate", fits)
    groups = groups if groups.shape[-1] else groups.new_zeros(candidates)
    return _of_matrix(spread(layout) if all_candidates and isinstance(layout, CatalogueLayout) else layout, groups)


def _of_matrix(layout: DenseLayout | CatalogueLayout, groups: Tensor) -> DenseLayout | CatalogueLayout:
    """Scores of groups; ``groups`` are [candidate] or [query, candidate]."""
    queries, candidates = layout.scores.shape
    # The numbers of groups of an accelerator are not read. Columns behind the last group are padding.
    shared, width = groups.dim() == 1, candidates
    if shared:
        numbers = group_numbers(groups.unsqueeze(0)).expand(queries, -1)
        width = int(numbers.max()) + 1 if groups.is_cpu and queries else candidates
    step, parts = max(1, BLOCK // candidates), list[dict[str, Any]]()
    for start in range(0, max(1, queries), step):
        some = slice(start, start + step)
        rows: Any = layout.rows(start, start + step)
        parts.append(_of_scores(rows, numbers[some] if shared else group_numbers(groups[some]), width))
    columns: dict[str, Any] = {name: _joined(name, parts) for name in parts[0]}
    if isinstance(layout, CatalogueLayout):
        columns["judged"] = _merged(layout.judged, columns["judged"])
    return replace(layout, **columns, exclude=None)


def _checked(groups: Tensor, shape: str, fits: bool) -> Tensor:
    if not fits:
        raise ValueError(f"Expected groups of shape {shape}, got {list(groups.shape)}")
    return groups


def group_numbers(groups: Tensor) -> Tensor:
    """The number of the group of each candidate among those of its row, from 0: int64, in the shape of ``groups``.

    Example:
        >>> group_numbers(torch.tensor([[7, -1, 5, 7, -1]]))
        tensor([[3, 0, 2, 3, 1]])
    """
    ordered, order = groups.sort(dim=-1, stable=True)
    begins = torch.zeros_like(ordered, dtype=torch.bool)
    begins[..., 1:] = (ordered[..., 1:] != ordered[..., :-1]) | (ordered[..., 1:] < 0)
    return torch.zeros_like(order).scatter(-1, order, begins.cumsum(-1))


def _of_scores(layout: DenseLayout | CatalogueLayout, numbers: Tensor, width: int) -> dict[str, Any]:
    """The fields of a layout of groups, for some queries.

    Args:
        layout: the scores of these queries.
        numbers: the number of the group of each candidate, int64 [query, candidate].
        width: the number of columns; if it is the number of candidates, there may be fewer groups.
    """
    keep, scores, tie_break = _kept(layout), layout.scores, layout.tie_break
    best = _largest(scores, numbers, width, keep, -math.inf)
    there = None
    if keep is not None:
        there = _largest(keep.byte(), numbers, width, None, 0).bool()
    elif width == scores.shape[1]:
        there = torch.arange(width, device=numbers.device) <= numbers.amax(-1, keepdim=True)
    if tie_break is not None:  # that of the best candidate
        at_best = scores == best.gather(1, numbers)
        tie_break = _largest(tie_break, numbers, width, at_best if keep is None else at_best & keep, _least(tie_break))
    fields: dict[str, Any] = {"scores": best, "mask": there, "tie_break": tie_break}
    if isinstance(layout, CatalogueLayout):
        owner, items, _ = _entries(layout.judged)
        column = items.clamp_min(0)
        inside = items >= 0 if keep is None else (items >= 0) & keep[owner, column]
        return fields | {"judged": torch.where(inside, numbers[owner, column], items.clamp_max(-1))}
    for name in ("grade", "subtopics"):
        if (x := getattr(layout, name)) is not None:
            x = _largest(x, numbers, width, keep, _least(x))
            x = x if there is None else x.masked_fill_(~_like(there, x), 0)
        fields[name] = x
    unjudged = layout.grade < 0 if keep is None else (layout.grade < 0) & keep
    fields["partly_judged"] = None
    if not unjudged.is_cpu or unjudged.any():
        fields["partly_judged"] = _largest(unjudged.byte(), numbers, width, None, 0).bool() & (fields["grade"] >= 0)
    return fields


def _kept(layout: DenseLayout | CatalogueLayout) -> Tensor | None:
    """The candidates that are neither padding nor excluded, bool [query, candidate]; None = all."""
    scores, pairs = layout.scores, layout.exclude
    if pairs is None:
        return layout.mask
    # One more row, the last, takes the pairs of query -1.
    keep = scores.new_ones((len(scores) + 1, scores.shape[1]), dtype=torch.bool)
    put(keep, (pairs.query, pairs.item), False)
    if isinstance(layout, DenseLayout):  # relevant candidates stay
        keep = keep[:-1] | (layout.grade > 0)
    else:
        owner, items, grade = _entries(layout.judged)
        put(keep, (torch.where((grade > 0) & (items >= 0), owner, -1), items.clamp_min(0)), True)
        keep = keep[:-1]
    return keep if layout.mask is None else keep & layout.mask


def _largest(x: Tensor, numbers: Tensor, width: int, keep: Tensor | None, least: float) -> Tensor:
    """The largest number of each group, [query, group, ...]; ``least`` if none is kept."""
    x = x if keep is None else x.masked_fill(~_like(keep, x), least)
    found = x.new_full((len(x), width, *x.shape[2:]), least)
    return found.scatter_reduce_(1, _like(numbers, x).expand(x.shape), x, "amax")


def _like(x: Tensor, other: Tensor) -> Tensor:
    """A matrix with as many dimensions as another tensor."""
    return x.view(*x.shape, *(1,) * (other.dim() - 2)) if other.dim() > 2 else x


def _least(x: Tensor) -> float:
    return -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min


def _joined(name: str, parts: list[dict[str, Any]]) -> Tensor | None:
    """A field of all queries; None if no part has it. Without the field, no group of a part is partly judged."""
    if all(part[name] is None for part in parts):
        return None
    fields = [
        torch.zeros_like(part["scores"], dtype=torch.bool) if part[name] is None else part[name] for part in parts
    ]
    return fields[0] if len(fields) == 1 else torch.cat(fields)


def _of_rows(layout: FlatRows, groups: Tensor) -> FlatRows:
    """Rows of groups. A group of several queries is a group in each of them."""
    if not len(groups):
        return layout
    _, query = layout.indexes.unique(return_inverse=True)
    numbers = group_numbers((query * len(query) + group_numbers(groups)).unsqueeze(0))
    width = int(numbers.max()) + 1
    fields = {name: getattr(layout, name) for name in ("scores", "grade", "mask", "tie_break")}
    fields = {name: None if x is None else x.unsqueeze(0) for name, x in fields.items()}
    row = DenseLayout(layout.errors, layout.validate, **fields)  # of one query
    found = _of_scores(row, numbers, width).items()
    rows: dict[str, Any] = {name: None if x is None else x.squeeze(0) for name, x in found if name != "subtopics"}
    indexes = layout.indexes.new_zeros(width).scatter_(0, numbers.squeeze(0), layout.indexes)
    return replace(layout, **rows, indexes=indexes)


def _of_ids(layout: RankedIds, groups: Tensor, all_candidates: bool) -> Layout:
    """Lists of groups, each at the position of its first id."""
    items, grade = layout.judged.rectangle()
    ids, valid, errors = listed_ids(layout, items, grade)
    numbers = group_numbers(groups)

    def of(ids: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        outside = inside & (ids >= len(groups))
        number = torch.where(inside & ~outside, numbers[ids.clamp(0, len(groups) - 1)], -1)
        return number, count(Problem.OUT_OF_RANGE, outside, layout.ignored)

    number_of, bad = of(ids, ids >= 0)
    groups_of, outside = of(items, valid)
    errors = errors + bad + outside
    if all_candidates:
        return _of_matrix(spread_lists(layout, items, grade, ids, valid, errors), torch.cat([number_of, groups_of], -1))
    ids = number_of.masked_fill(repeated(number_of), -1)
    judged = _merged(_wide(layout, items, grade), torch.where(items == IGNORED, items, groups_of))
    return replace(layout, errors=errors, ids=ids, judged=judged, mask=None, exclude=None)


def _of_embeddings(layout: EmbeddedLayout, groups: Tensor) -> Layout:
    """Blocks of scores of groups, each with all items of its groups. Reads the groups."""
    if layout.shard is not None:
        raise ValueError("Expected no groups for items spread over workers, got groups; pass all items and group=False")
    if not len(groups):
        return layout
    queries, order = layout.queries.to(layout.score_dtype), group_numbers(groups).argsort(stable=True)
    width = max(1, min(layout.chunk, layout.room(queries) // max(1, len(queries))))

    def products() -> Iterator[Tensor]:
        for items in order.split(width):
            with multiplying(layout.precision, queries.device):
                yield queries @ layout.factors(layout.catalogue[items]).T

    blocks = StreamedLayout(
        layout.errors, layout.validate, products, layout.judged, queries.dtype, True, layout.exclude
    )
    return _of_blocks(blocks, groups, order)


def _of_blocks(layout: StreamedLayout, groups: Tensor, order: Tensor) -> StreamedLayout:
    """Blocks of scores of groups: each group is in that of its last item. Reads the groups.

    Args:
        layout: blocks of the scores of items.
        groups: the group of each item.
        order: the items from left to right.
    """
    number, place = group_numbers(groups)[order], torch.arange(len(order), device=order.device)
    ends, of_column = torch.empty_like(place).scatter_(0, number, place)[number].unique(return_inverse=True)
    of_item = torch.empty_like(order).scatter_(0, order, of_column)
    items, grade = layout.judged.rectangle()
    errors = layout.errors + count(Problem.OUT_OF_RANGE, items >= len(order))
    row = column = order[:0]
    if layout.exclude is not None:
        applies, gone = removed(layout.exclude, items, grade)
        row, item = layout.exclude.query[applies], layout.exclude.item[applies]
        errors = errors + count(Problem.OUT_OF_RANGE, item >= len(order))
        column = order.argsort()[item.clamp_max(len(order) - 1)]
        items = items.masked_fill(gone, -1)
    groups_of = torch.where(items < 0, items, of_item[items.clamp(0, len(order) - 1)])
    ends, of_column = ends.cpu(), of_column.cpu()

    def read() -> Iterator[Tensor]:
        start, begun, open_groups = 0, None, of_column[:0]
        for block in layout.scores():
            stop = start + block.shape[1]
            scores = torch.cat([block[:, :0] if begun is None else begun, block], -1)
            here, places = torch.cat([open_groups, of_column[start:stop]]).unique(return_inverse=True)
            if len(places) != scores.shape[1]:
                break
            inside = (column >= start) & (column < stop)
            scores[row[inside], column[inside] - stop] = -math.inf
            places = places.to(scores.device, non_blocking=True).expand(len(scores), -1)
            best = _largest(scores, places, len(here), None, -math.inf)
            whole = int((ends[here] < stop).sum())
            yield best[:, :whole]
            begun, open_groups, start = best[:, whole:], here[whole:], stop
        if start != len(of_column) or stop != start:
            raise ValueError(f"Expected groups [item] of all items of the blocks, got {len(of_column)}")

    judged = _merged(_wide(layout, items, grade), groups_of)
    return replace(layout, errors=errors, scores=read, judged=judged, exclude=None)


def _wide(layout: RankedIds | StreamedLayout, items: Tensor, grade: Tensor) -> JudgedItems:
    """The judged items of a layout, from its rectangle [query, entry], padding included."""
    if layout.judged.labels:
        return Padded(items, True)
    start = torch.arange(len(items) + 1, device="cpu") * items.shape[1]
    return Ragged(items.flatten(), grade.flatten(), start)


def _entries(judged: JudgedItems) -> tuple[Tensor, Tensor, Tensor]:
    """Query, item and grade of each judged item: [entry] each."""
    sizes, device = judged.sizes, judged.items.device
    owner = torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), sizes).to(device, non_blocking=True)
    items, grade = judged.rectangle() if isinstance(judged, Padded) else (judged.items, judged.grade)
    return owner, items.flatten(), grade.flatten()


def _merged(judged: JudgedItems, groups: Tensor) -> JudgedItems:
    """The judged items as groups, each once with the largest grade.

    Args:
        judged: the items.
        groups: the group of each item; negative = none.
    """
    if judged.labels:
        return replace(judged, items=groups.view_as(judged.items))
    owner, _, grade = _entries(judged)
    groups = groups.flatten()
    # Three stable sorts put the largest grade of a group of a query first.
    order = grade.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    order = order[owner[order].argsort(stable=True)]
    again = torch.zeros_like(groups, dtype=torch.bool)
    again[order[1:]] = (groups[order[1:]] == groups[order[:-1]]) & (owner[order[1:]] == owner[order[:-1]])
    return replace(judged, items=groups.masked_fill(again & (groups >= 0), -1).view_as(judged.items))
