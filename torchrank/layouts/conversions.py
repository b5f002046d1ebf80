"""From one canonical layout to another: lists without repeated ids, dense lists, groups ranked as one candidate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.devices import constant, greatest, multiplying, possibly, put, scalar
from torchrank.layouts.canonical import (
    BLOCK,
    OUTSIDE_THE_POOL,
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Judged,
    Layout,
    Pairs,
    RankedIds,
    StreamedLayout,
    repetitions,
)
from torchrank.layouts.checks import Problem, count, integer_ids, tensor_of, type_of

# The id of the first position that a repeated id holds. No hash of an id comes so close to the largest integer.
HELD = 2**63 - 2**31


def found(items: Tensor, ids: Tensor) -> Tensor:
    """Position of each item in the list of its query, counted from 1, or 0 if it is not there: int64 [query, entry].

    If the list contains an item several times, it is the last position.

    Args:
        items: int64 [query, entry], negative = padding.
        ids: int64 [query, position], negative = padding.
    """
    if not ids.shape[1]:
        return torch.zeros_like(items)
    if items.shape[1] <= costs.now.compared:  # compare each item with each id
        # The queries come last, because loops over few positions are slow.
        same = items.T.contiguous().unsqueeze(1) == ids.T.contiguous()  # [entry, position, query]
        at = (same.view(torch.int8) * _positions(ids.shape[1], ids.device)).amax(1).T.long()
    else:
        row = torch.arange(len(ids), device=ids.device).unsqueeze(-1)
        at = _looked_up(items, row, *ids.sort(dim=-1, stable=True))
    return torch.where(items >= 0, at, scalar(0, at.dtype, at.device))


@constant
def _positions(number: int, device: torch.device) -> Tensor:
    dtype = torch.int8 if number < 2**7 else torch.int16 if number < 2**15 else torch.int32
    return torch.arange(1, number + 1, dtype=dtype, device=device).unsqueeze(-1)


def repeated(ids: Tensor) -> Tensor:
    """Mark the later copies of each id of a list: bool [query, position]. Negative ids are padding."""
    ordered, order = ids.sort(dim=-1, stable=True)
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    return torch.zeros_like(again).scatter(-1, order, again)


def without_repeats(layout: Layout, repeats: str) -> RankedIds:
    """Lists of different ids.

    Args:
        layout: ranked ids.
        repeats: "first" = later copies are not candidates; "hold" = a new id is at the place of each.

    Raises:
        ValueError: ``repeats`` is something else, or the layout has scores.
    """
    if repeats not in ("first", "hold"):
        raise ValueError(f"Expected repeats to be 'error', 'first' or 'hold', got {repeats!r}")
    if not isinstance(layout, RankedIds):
        raise ValueError(f"Expected repeats='error' for scores, got {repeats!r}; pass groups for columns of one item")
    ids = layout.ids if layout.mask is None else torch.where(layout.mask, layout.ids, -1)
    position = torch.arange(ids.shape[1], device=ids.device)
    ids = torch.where(repeated(ids), -1 if repeats == "first" else HELD + position, ids)
    return replace(layout, ids=ids, mask=None)


def _looked_up(item: Tensor, row: Tensor, ordered: Tensor, order: Tensor) -> Tensor:
    """:func:`found` by binary search in sorted lists.

    Args:
        item: ids of any shape.
        row: the row of the list of each item, in a shape that broadcasts with ``item``.
        ordered: the lists, each in ascending order, [row, position].
        order: the position of each element of ``ordered`` in the unsorted list, from 0, int64.

    Returns:
        positions from 1, or 0, int64 in the shape of ``item``.
    """
    # torch.searchsorted needs the same number of items for each list, but excluded ids have any number.
    width = ordered.shape[1]
    ordered, order, start = ordered.flatten(), order.flatten(), row * width
    up_to = torch.zeros_like(item)  # number of ids in the list that are at most the item
    step = 1 << width.bit_length()
    while step := step >> 1:
        ahead = up_to + step
        smaller = ordered.take(start + (ahead - 1).clamp_max(width - 1)) <= item
        up_to = torch.where((ahead <= width) & smaller, ahead, up_to)
    last = start + (up_to - 1).clamp_min(0)
    return torch.where((up_to > 0) & (ordered.take(last) == item), order.take(last) + 1, 0)


def listed_ids(layout: RankedIds, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The ids that are candidates; marks the judged items that are candidates; and counts bad values.

    Args:
        layout: the lists.
        items: the judged items, int64 [query, entry], negative = padding.
        grade: their grades, [query, entry].

    Returns:
        int64 [query, position], negative = no candidate; bool [query, entry]; counters of bad values, int64 [kind].
    """
    ids, valid, errors = layout.ids, items >= 0, layout.errors
    if layout.mask is not None:
        ids = torch.where(layout.mask, ids, -1)
    if layout.validate:
        errors = count(Problem.DUPLICATE_IDS, repetitions(ids), layout.ignored, errors)
    if layout.exclude is not None:
        out, gone = _excluded(layout.exclude, layout.ids, items, grade)
        ids, valid = ids.masked_fill(out, -1), valid & ~gone
    return ids, valid, errors


def spread(layout: CatalogueLayout | RankedIds) -> DenseLayout:
    """Convert lists with a few judged items to a dense layout; all other candidates are outside the pool."""
    items, grade = layout.judged.rectangle()
    if isinstance(layout, CatalogueLayout):
        signed = _signed(grade)
        # One more column, the last, takes the padding of the judged items.
        grades = signed.new_full((len(items), layout.scores.shape[1] + 1), OUTSIDE_THE_POOL)
        grades = grades.scatter(1, torch.where(items < 0, layout.scores.shape[1], items), signed)[:, :-1]
        mask = layout.mask
        if layout.ignored is not None:  # an ignored query gets no candidates, so that its scores cannot be bad values
            counts = ~layout.ignored.unsqueeze(-1)
            mask = counts.expand_as(grades) if mask is None else mask & counts
        head = layout.errors, layout.validate, layout.scores, grades, mask, layout.tie_break, layout.exclude
        return DenseLayout(*head, ignored=layout.ignored, costs=layout.costs)
    return spread_lists(layout, items, grade, *listed_ids(layout, items, grade))


def spread_lists(
    layout: RankedIds, items: Tensor, grade: Tensor, ids: Tensor, valid: Tensor, errors: Tensor
) -> DenseLayout:
    """:func:`spread` for lists, given the judged items [query, entry], and the result of :func:`listed_ids`."""
    signed = _signed(grade)
    position = found(items, ids)
    # One more column, the first, takes the judged ids that are not in their list: their position is 0.
    grades = signed.new_full((len(ids), ids.shape[1] + 1), OUTSIDE_THE_POOL).scatter(1, position, signed)[:, 1:]
    # Scores that descend with the position. Judged ids that are not in the list follow it, not retrieved.
    by_position = -torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device).expand(ids.shape)
    missing = valid & (position == 0)
    prices = None if layout.costs is None else torch.nn.functional.pad(layout.costs, (0, items.shape[1]))
    scores = torch.cat([by_position, torch.full_like(items, float("-inf"), dtype=torch.float32)], -1)
    grades, mask = torch.cat([grades, signed], -1), torch.cat([ids >= 0, missing], -1)
    return DenseLayout(errors, False, scores, grades, mask, ignored=layout.ignored, costs=prices)


def _signed(grade: Tensor) -> Tensor:
    """Grades in a dtype for those outside the pool, which are negative."""
    return grade if grade.is_signed() else grade.long()


def _excluded(exclude: Pairs, ids: Tensor, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the positions, and the judged ids, that are excluded and not relevant: bool in the shapes of both."""
    applies, gone = removed(exclude, items, grade)
    row = exclude.query.clamp_min(0)
    position = _looked_up(exclude.item, row, *ids.sort(dim=-1, stable=True))
    return _marked(ids, row, torch.where(applies, position, 0)), gone


def removed(exclude: Pairs, items: Tensor, grade: Tensor) -> tuple[Tensor, Tensor]:
    """Find the excluded pairs among the judged items.

    Args:
        exclude: the pairs; query -1 = the pair has no effect.
        items: the judged items, int64 [query, entry].
        grade: their grades, [query, entry].

    Returns:
        whether a pair has an effect, because its item is not relevant, bool [pair]; the entries removed, bool [query,
        entry].
    """
    row = exclude.query.clamp_min(0)
    entry = _looked_up(exclude.item, row, *items.sort(dim=-1, stable=True))
    relevant = (entry > 0) & (grade[row, (entry - 1).clamp_min(0)] > 0)
    applies = (exclude.query >= 0) & ~relevant
    return applies, _marked(items, row, torch.where(applies, entry, 0))


def _marked(like: Tensor, row: Tensor, position: Tensor) -> Tensor:
    """Bool, like a matrix: True at some positions, which count from 1 in their rows; 0 = nowhere."""
    # One more column, the first, takes the positions that are nowhere.
    marks = like.new_zeros((len(like), like.shape[1] + 1), dtype=torch.bool)
    put(marks, (row, position), True)
    return marks[:, 1:]


def grouped(layout: Layout, groups: Any, all_candidates: bool = False) -> Layout:
    """Convert a layout of candidates to one of groups.

    A group has the score of its best candidate and the largest grade of its candidates. If some of these are judged
    and others are not, the grade of the group is a lower bound, and the group is marked as partly judged.

    Args:
        layout: scores, embeddings, blocks of scores, flat rows or ranked ids.
        groups: int [candidate] or [query, candidate] with scores, [item] with embeddings and blocks, [row] with flat
            rows, [id] with ids: equal for candidates of one group; negative = a group of one.
        all_candidates: whether candidates that a layout does not name will be read, as unjudged ones. Then groups of
            scores are dense lists, as those of ids always are.

    Raises:
        TypeError, ValueError: groups are not integers, or have another shape.
    """
    if not isinstance(groups := tensor_of(groups), Tensor):
        got = type_of(groups, "groups")
        got = got if "; pass" in got else f"{got}; pass numpy.unique(groups, return_inverse=True)[1]"
        raise TypeError(f"Expected groups to be integers, got {got}")
    groups = integer_ids(groups, "groups", "preds").to(layout.errors.device).long()
    if isinstance(layout, FlatRows):
        rows = len(layout.scores)
        fits, wanted = groups.shape == (rows,), f"[{rows}], the group of each row (sizes of queries are group_sizes)"
    elif isinstance(layout, EmbeddedLayout):
        items = len(layout.catalogue)
        fits, wanted = groups.shape == (items,), f"[{items}], the group of each item"
    elif isinstance(layout, DenseLayout | CatalogueLayout):
        queries, candidates = layout.scores.shape
        # A batch without candidates has one column of padding.
        fits = groups.shape in ((candidates,), (queries, candidates)) or (not groups.numel() and candidates == 1)
        wanted = f"[{candidates}] or {[queries, candidates]}, the group of each candidate"
    else:
        fits, wanted = groups.dim() == 1 and groups.numel() > 0, "[item], the group of each item of all blocks"
        wanted = "[id], the group of each id" if isinstance(layout, RankedIds) else wanted
    if not fits:
        raise ValueError(f"Expected groups of shape {wanted}, got {list(groups.shape)}")
    if isinstance(layout, RankedIds):
        return _group_ids(layout, groups)
    if isinstance(layout, FlatRows):
        return _group_rows(layout, groups)
    if isinstance(layout, EmbeddedLayout):
        return _group_embeddings(layout, groups)
    if isinstance(layout, StreamedLayout):
        return _group_blocks(layout, groups, torch.arange(len(groups), device=groups.device))
    assert isinstance(layout, DenseLayout | CatalogueLayout)
    groups = groups if groups.shape[-1] else groups.new_zeros(candidates)
    return _group_matrix(spread(layout) if all_candidates and isinstance(layout, CatalogueLayout) else layout, groups)


def _group_matrix(layout: DenseLayout | CatalogueLayout, groups: Tensor) -> DenseLayout | CatalogueLayout:
    """Scores of groups; ``groups`` are [candidate] or [query, candidate]."""
    queries, candidates = layout.scores.shape
    # The numbers of groups of an accelerator are not read. Columns after the last group are padding.
    shared, width = groups.dim() == 1, candidates
    if shared:
        numbers = group_numbers(groups.unsqueeze(0)).expand(queries, -1)
        width = greatest(numbers, candidates - 1) + 1
    step, parts = max(1, BLOCK // candidates), list[dict[str, Any]]()
    for start in range(0, max(1, queries), step):
        some = slice(start, start + step)
        rows: Any = layout.rows(start, start + step)
        parts.append(_group_scores(rows, numbers[some] if shared else group_numbers(groups[some]), width))
    columns: dict[str, Any] = {name: _joined(name, parts) for name in parts[0]}
    if isinstance(layout, CatalogueLayout):
        columns["judged"] = _merged(layout.judged, columns["judged"])
    return replace(layout, **columns, exclude=None)


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


def _group_scores(layout: DenseLayout | CatalogueLayout, numbers: Tensor, width: int) -> dict[str, Any]:
    """The fields of a layout of groups, for some queries.

    Args:
        layout: the scores of these queries.
        numbers: the number of the group of each candidate, int64 [query, candidate].
        width: the number of columns; if it is the number of candidates, there may be fewer groups.
    """
    keep = layout.mask if layout.exclude is None else included(layout, layout.exclude)
    scores, tie_break = layout.scores, layout.tie_break
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
        owner, items = layout.judged.owner, layout.judged.items
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
    if possibly(unjudged):
        fields["partly_judged"] = _largest(unjudged.byte(), numbers, width, None, 0).bool() & (fields["grade"] >= 0)
    return fields


def included(layout: DenseLayout | CatalogueLayout, pairs: Pairs) -> Tensor:
    """The candidates that are neither padding nor in excluded pairs, bool [query, candidate]."""
    scores = layout.scores
    # One more row, the last, takes the pairs of query -1.
    keep = scores.new_ones((len(scores) + 1, scores.shape[1]), dtype=torch.bool)
    put(keep, (pairs.query, pairs.item), False)
    if isinstance(layout, DenseLayout):  # relevant candidates stay
        keep = keep[:-1] | (layout.grade > 0)
    else:
        judged = layout.judged
        stays = (judged.grade > 0) & (judged.items >= 0)
        put(keep, (torch.where(stays, judged.owner, -1), judged.items.clamp_min(0)), True)
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
    fields = [torch.zeros_like(x["scores"], dtype=torch.bool) if x[name] is None else x[name] for x in parts]
    return torch.cat(fields)


def _group_rows(layout: FlatRows, groups: Tensor) -> FlatRows:
    """Rows of groups. A group of several queries is a group in each of them."""
    if not len(groups):
        return layout
    _, query = layout.indexes.unique(return_inverse=True)
    numbers = group_numbers((query * len(query) + group_numbers(groups)).unsqueeze(0))
    width = int(numbers.max()) + 1
    fields = {name: getattr(layout, name) for name in ("scores", "grade", "mask", "tie_break")}
    fields = {name: None if x is None else x.unsqueeze(0) for name, x in fields.items()}
    row = DenseLayout(layout.errors, layout.validate, **fields)  # of one query
    found = _group_scores(row, numbers, width).items()
    rows: dict[str, Any] = {name: None if x is None else x.squeeze(0) for name, x in found if name != "subtopics"}
    indexes = layout.indexes.new_zeros(width).scatter_(0, numbers.squeeze(0), layout.indexes)
    return replace(layout, **rows, indexes=indexes)


def _group_ids(layout: RankedIds, groups: Tensor) -> Layout:
    """Dense lists of groups, each at the position of its first id."""
    items, grade = layout.judged.rectangle()
    ids, valid, errors = listed_ids(layout, items, grade)
    numbers = group_numbers(groups)

    def numbered(ids: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        outside = inside & (ids >= len(groups))
        number = torch.where(inside & ~outside, numbers[ids.clamp(0, len(groups) - 1)], -1)
        return number, count(Problem.OUT_OF_RANGE, outside, layout.ignored)

    (listed, bad), (judged, outside) = numbered(ids, ids >= 0), numbered(items, valid)
    lists = spread_lists(layout, items, grade, ids, valid, errors + bad + outside)
    return _group_matrix(lists, torch.cat([listed, judged], -1))


def _group_embeddings(layout: EmbeddedLayout, groups: Tensor) -> Layout:
    """Blocks of scores of groups, each with all items of its groups. Reads the groups."""
    if layout.shard is not None:
        raise ValueError("Expected no groups for items spread over workers, got groups; pass all items and group=False")
    if not len(groups):
        return layout
    queries, order = layout.queries.to(layout.score_dtype), group_numbers(groups).argsort(stable=True)
    width = max(1, min(layout.chunk, costs.now.products(queries) // max(1, len(queries))))

    def products() -> Iterator[Tensor]:
        for items in order.split(width):
            with multiplying(layout.precision, queries.device):
                yield queries @ layout.factors(layout.catalogue[items]).T

    blocks = StreamedLayout(
        layout.errors, layout.validate, products, layout.judged, queries.dtype, True, layout.exclude
    )
    return _group_blocks(blocks, groups, order)


def _group_blocks(layout: StreamedLayout, groups: Tensor, order: Tensor) -> StreamedLayout:
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

    judged = _merged(Judged.from_rows(items, grade, layout.judged.ungraded), groups_of)
    return replace(layout, errors=errors, scores=read, judged=judged, exclude=None)


def _merged(judged: Judged, groups: Tensor) -> Judged:
    """The judged items as groups, each once with the largest grade.

    Args:
        judged: the items.
        groups: the group of each item; negative = none.
    """
    owner, grade, groups = judged.owner, judged.grade, groups.flatten()
    if judged.labels:
        return replace(judged, items=groups)
    # Three stable sorts put the largest grade of a group of a query first.
    order = grade.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    order = order[owner[order].argsort(stable=True)]
    again = torch.zeros_like(groups, dtype=torch.bool)
    again[order[1:]] = (groups[order[1:]] == groups[order[:-1]]) & (owner[order[1:]] == owner[order[:-1]])
    return replace(judged, items=groups.masked_fill(again & (groups >= 0), -1))


def identifiers(beams: Tensor, ids_of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number the identifiers, equal ones alike. Reads values, so it waits for an accelerator.

    Args:
        beams: int [query, beam], or [query, beam, level] for identifiers of several codes; negative = padding.
        ids_of: int [item] or [item, level], the identifier of each item.

    Returns:
        three of int64: the number of each beam, -1 = padding, [query, beam]; that of each item; and how many items have
        the identifier of each beam, 0 of padding, [query, beam].

    Raises:
        TypeError, ValueError: they are not integers, or not of as many levels.
    """
    beams, ids_of = integer_ids(beams, "beams", "ids_of"), integer_ids(ids_of, "ids_of", "beams")
    if ids_of.dim() not in (1, 2) or not ids_of.numel() or beams.dim() < 2 or beams.shape[2:] != ids_of.shape[1:]:
        wanted = "beams [query, beam] and ids_of [item], or both with one more dimension of as many levels"
        raise ValueError(f"Expected {wanted}, got shapes {list(beams.shape)} and {list(ids_of.shape)}")
    ids_of, levels = ids_of.to(beams.device).long(), max(1, ids_of.shape[1:].numel())
    codes = torch.cat([ids_of.reshape(-1, levels), beams.long().reshape(-1, levels)])
    _, number = codes.unique(dim=0, return_inverse=True)
    items, generated = number.split([len(ids_of), len(number) - len(ids_of)])
    padding = (codes[len(ids_of) :] < 0).any(-1)
    counts = items.bincount(minlength=int(number.max()) + 1)[generated].masked_fill(padding, 0)
    return generated.masked_fill(padding, -1).view(beams.shape[:2]), items, counts.view(beams.shape[:2])


def check_items(target: Any, ids_of: Any) -> None:
    """Raise ValueError if a target is a matrix of identifiers of items, in the place of numbers of items."""
    target, ids_of = target if isinstance(target, list) else tensor_of(target), tensor_of(ids_of)
    if not isinstance(target, Tensor) or target.dim() < 2 or not target.shape[1] == ids_of.shape[-1] > 1:
        return
    if len(target) and ids_of.dim() == 2 and bool((identifiers(target.unsqueeze(1), ids_of)[2] > 0).all()):
        raise ValueError("Expected target to have rows of ids_of, got identifiers; pass the items, or list(target)")
