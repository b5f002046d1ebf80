"""The user's arguments: checks, and conversion to a canonical layout.

Bad shapes and dtypes raise at once. Bad values are counted on the device (see :mod:`torchrank.layouts.checks`),
because reading values would make every ``update`` wait for the accelerator.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypedDict, TypeVar

import numpy
import torch
import torch.distributed as dist
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.devices import in_batch, widened
from torchrank.layouts import checks
from torchrank.layouts.canonical import (
    CatalogueLayout,
    DenseLayout,
    EmbeddedLayout,
    FlatRows,
    Judged,
    Layout,
    RankedIds,
    StreamedLayout,
    signs,
)
from torchrank.layouts.conversions import grouped, without_repeats
from torchrank.names.arguments import imported, integer, warn
from torchrank.names.types import Array, Pairs, Repeats

F = TypeVar("F", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """The arguments of ``update`` besides ``preds`` and ``target``, for methods that pass them on to a batch."""

    mask: Array | None
    indexes: Array | None
    group_sizes: Array | None
    exclude: Pairs | None
    tie_break: Array | None
    groups: Array | None
    repeats: Repeats
    weights: Array | None


def with_options(method: F) -> F:
    """Decorator that shows each of the :class:`Options` in the signature of a method, for help and for torchmetrics."""
    signature = inspect.signature(method)
    options = (
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(Batch, name), annotation=kind.__forward_arg__
        )
        for name, kind in Options.__annotations__.items()
    )
    method.__signature__ = signature.replace(parameters=[*signature.parameters.values()][:-1] + [*options])  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, eq=False)
class Batch:
    """Arguments of ``update`` or ``score``, before any check. Arrays and lists of numbers become tensors.

    A list as ``target`` or ``exclude`` stays a list, with the ids of one query in each element. A ``mask`` or
    ``tie_break`` of the catalogue, [candidate] or [1, candidate], is expanded to a row per query, without a copy.
    """

    preds: Any
    target: Any = None
    weights: Any = None
    mask: Any = None
    indexes: Any = None
    exclude: Any = None
    tie_break: Any = None
    #: int [query]: the number of rows of each query, in place of ``indexes``; None after the conversion to ``indexes``
    group_sizes: Any = None
    #: the group of each candidate or row; for ranked ids, the group of each id
    groups: Any = None
    #: the treatment of repeated ids: "error", "first" or "hold"
    repeats: str = "error"

    def __post_init__(self) -> None:
        for name, x in list(vars(self).items()):
            stays = x is None or type(x) is Tensor or isinstance(x, dict | str)
            if not stays and not (isinstance(x, list) and name in ("target", "exclude")):
                vars(self)[name] = checks.tensor_of(x)
        if self.group_sizes is not None:
            vars(self).update(indexes=checks.indexes_of(self.group_sizes, self.preds, self.indexes), group_sizes=None)
        for name in ("mask", "tie_break"):
            if (x := getattr(self, name)) is not None:
                shape, per_item = checks.shape_of(self.preds), checks.shape_of(x)
                if len(shape) == 2 and shape != per_item and per_item in (shape[1:], [1, shape[1]]):
                    vars(self)[name] = x.expand(shape)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments besides ``preds``, ``target`` and ``weights``, by name."""
        names = ("mask", "indexes", "exclude", "tie_break", "groups")
        options = {name: getattr(self, name) for name in names}
        return options | {"repeats": None if self.repeats == "error" else self.repeats}

    @property
    def queries(self) -> Tensor | None:
        """Numbers of the queries, int64 [query]: their indexes if given, else 0, 1, ...; None for a Ranking."""
        if not isinstance(self.preds, Tensor):
            return None
        if self.indexes is None:
            return torch.arange(len(self.preds), device="cpu")
        return checks.comparable(self.indexes).unique().cpu()

    def rows(self, start: int, stop: int) -> Batch:
        """The batch of the queries from ``start`` to ``stop``, without the pairs of other queries."""
        rows: slice | Tensor = slice(start, stop)
        if self.indexes is not None:
            indexes = checks.comparable(self.indexes)
            rows = torch.isin(indexes, indexes.unique()[start:stop])

        def cut(x: Any) -> Any:
            if isinstance(x, tuple):  # pairs: the first tensor holds the queries, which are renumbered from 0
                x = tuple(map(checks.tensor_of, x))
                inside = (x[0] >= start) & (x[0] < stop)
                return tuple(part[inside.to(part.device)] - (0 if n else start) for n, part in enumerate(x))
            if x is None:
                return None
            x = x.tocsr() if hasattr(x, "tocsr") else x  # a sparse matrix in any format
            return x[rows.to(x.device) if isinstance(rows, Tensor) and isinstance(x, Tensor) else rows]

        shared_groups = self.indexes is None and isinstance(self.groups, Tensor) and self.groups.dim() == 1
        options = {"repeats": self.repeats} | ({"groups": self.groups} if shared_groups else {})
        options |= {name: cut(x) for name, x in self.options.items() if name not in options}
        weights = None if self.weights is None else self.weights[start:stop]
        return Batch(cut(self.preds), cut(self.target), weights, **options)

    def outside(self, number: int) -> str:
        """A clause on the first of a number of labels, ids and pairs that are out of range; "" if none is found."""
        preds, width, allowed = self.preds, 2**63 - 1, "ids are 0 or more"
        if not isinstance(preds, Tensor) or preds.dim() != 2:
            return ""
        queries, scores = len(preds), preds.is_floating_point()
        if scores or self.groups is not None:
            width, of = (preds.shape[1], "preds has {} columns") if scores else (len(self.groups), "groups has {} ids")
            allowed = f"{of.format(width)}, 0 to {width - 1}"
        kind = "label" if isinstance(self.target, Tensor) and self.target.dim() == 1 else "item"
        for name, x in {kind: self.target, "excluded item": self.exclude, "id": preds}.items():
            if x is None or (scores and isinstance(x, Tensor) and x.dim() > 1):  # grades, or the scores
                continue
            if isinstance(x, Tensor):
                item = x.flatten()
                query = torch.arange(queries, device=x.device).repeat_interleave(len(item) // max(1, queries))
            else:
                query, item = checks.given_pairs(x[:2] if isinstance(x, tuple) else x, "target", preds)
            no_query = (query < 0) | (query >= queries)
            bad = no_query | (item >= width) | ((item < 0) if isinstance(x, tuple) else no_query)
            if not bad.any():
                continue
            at, first = int(bad.nonzero()[0]), "" if number == 1 else f" (the first of {number})"
            where = f"{name} {int(item[at])} of query {int(query[at])} is out of range"
            if no_query[at]:
                return f"{where}: preds has {queries} queries, 0 to {queries - 1}{first}"
            way_out = ""
            if scores and name == "excluded item":
                way_out = (
                    "; to exclude ids [Q, M] among candidates with ids [Q, D], pass"
                    " mask=(ids.unsqueeze(-1) != excluded.unsqueeze(1)).all(-1)"
                )
            elif scores and bool((preds == preds.round()).all()):
                way_out = "; if preds are ranked ids, pass preds.long()"
            return f"{where}: {allowed}{first}{way_out}"
        return ""

    def first(self, kind: checks.Problem, errors: Callable[[Batch], Tensor]) -> int | None:
        """The number of the first query in which ``errors`` counts a problem; None if no single query has it.

        Bisects the batch, so that all calls of ``errors`` together cost about as much as two calls on the full batch.
        """
        queries = self.queries
        if queries is None or not errors(self.rows(0, len(queries)))[kind]:
            return None
        start, stop = 0, len(queries)
        while stop - start > 1:
            middle = (start + stop) // 2
            start, stop = (start, middle) if errors(self.rows(start, middle))[kind] else (middle, stop)
        return int(queries[start])


def arrange(preds: Any, target: Any, *, validate: bool = True, scores: bool = False, **options: Any) -> Layout:
    """Convert the arguments of ``update`` to a canonical layout; see :func:`arrange_batch`."""
    return arrange_batch(Batch(preds, target, **options), validate, scores)


def arrange_batch(batch: Batch, validate: bool = True, scores: bool = False, all_candidates: bool = False) -> Layout:
    """Convert a batch to the canonical layout that its shapes and dtypes determine.

    Args:
        batch: the arguments; the weights are not read.
        validate: whether the engine also counts bad values.
        scores: whether ``preds`` must be scores. If False, integers are ranked ids.
        all_candidates: whether groups are read with all their candidates, also unjudged ones; see :func:`grouped`.

    Raises:
        TypeError: an argument has a type or dtype that no layout takes.
        ValueError: shapes do not fit together, or the layout does not take one of the arguments.
    """
    groups, repeats = batch.groups, batch.repeats
    if groups is not None or repeats != "error":
        if groups is not None and repeats == "hold":
            raise ValueError("Expected repeats='error' or 'first' with groups, each of which has one rank, got 'hold'")
        scored, graded = checks.shape_of(batch.preds), checks.shape_of(batch.target)
        differ = scored != graded and len(scored) == len(graded) == 2
        if groups is not None and differ and batch.preds.is_floating_point():
            raise ValueError(
                f"Expected target of shape {scored}, got {graded}; if grades are of groups, pass target[:, groups]"
            )
        layout = arrange_batch(replace(batch, groups=None, repeats="error"), validate, scores)
        layout = layout if repeats == "error" else without_repeats(layout, repeats)
        return layout if groups is None else grouped(layout, groups, all_candidates)
    target, mask, exclude, tie_break = batch.target, batch.mask, batch.exclude, batch.tie_break
    preds = checks.check_tensor(batch.preds, "preds", "a tensor of scores or ids or a Ranking").detach()
    if isinstance(target, Tensor):
        checks.check_tensor(target, "target")
        if target.is_floating_point():
            checks.check_not_exchanged(preds, target)
    if tie_break is not None:
        tie_break = checks.comparable(checks.check_tensor(tie_break, "tie_break"))
    if scores:
        checks.check_floating(preds, "preds")
    if preds.is_complex() or preds.dtype == torch.bool:
        raise TypeError(f"Expected preds to be floating point scores or integer ids, got {preds.dtype}")
    if preds.dim() == 1 or batch.indexes is not None:
        return _flat(preds, batch, tie_break, validate)
    if preds.dim() != 2:
        raise ValueError(
            "Expected preds of shape [query, candidate], or [row] together with indexes,"
            f" got shape {list(preds.shape)}; flatten the leading dimensions by preds.flatten(0, -2)"
        )
    if not preds.is_floating_point():
        return _ranked_ids(preds, batch, validate)
    if mask is not None:
        mask = checks.on_grid(mask, "mask", preds, dtype=torch.bool)
    if tie_break is not None:
        tie_break = checks.on_grid(tie_break, "tie_break", preds)
    judged: Judged | None = None
    pairs = subtopics = None
    if isinstance(target, Tensor) and target.dim() in (2, 3):
        if target.shape[:2] != preds.shape or 0 in target.shape[2:]:
            raise ValueError(
                f"Expected target of preds' shape {list(preds.shape)} (a grade per candidate), with one more dimension"
                f" (a grade per candidate and subtopic), or [{preds.shape[0]}] (the column of the positive), a (query,"
                f" item) tuple or a list of {preds.shape[0]} id tensors, got shape {list(target.shape)}"
                f"{checks.way_out(target, 'target', preds)}"
            )
        grade, errors = checks.grades(target, preds.device, mask)
        if grade.dim() == 3:  # measures without subtopics read the largest grade of each candidate
            grade, subtopics = grade.amax(-1), grade
        elif mask is None and grade.is_cpu and (grade[:, -1:] < 0).any():
            _notice_padding(preds, grade)
    else:
        judged, errors = checks.judged_items(target, preds, "preds [Q, D] of scores", limit=preds.shape[1])
    if tie_break is not None:
        errors = errors + checks.bad_tie_break(tie_break, mask, None if judged is None else judged.ignored)
    if exclude is not None:
        pairs, bad = checks.excluded_pairs(exclude, preds)
        errors = errors + bad
    if not preds.shape[1]:  # engines never read an empty row: one column of padding
        preds, tie_break = preds.new_full((len(preds), 1), -math.inf), None
        mask = torch.zeros_like(preds, dtype=torch.bool)
        if judged is None:
            grade = grade.new_zeros((len(grade), 1))
            subtopics = None if subtopics is None else subtopics.new_zeros((len(grade), 1, subtopics.shape[2]))
    if judged is None:
        return DenseLayout(errors, validate, preds, grade, mask, tie_break, pairs, subtopics)
    return CatalogueLayout(errors, validate, preds, judged, mask, tie_break, pairs)


def _notice_padding(scores: Tensor, grade: Tensor) -> None:
    """Warn if negative grades, which mean "unjudged", seem to be padding of candidates or of ids. On the CPU only."""
    padding = grade < 0
    lengths = (~padding).sum(-1)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest or bool((padding[:, :-1] > padding[:, 1:]).any()):
        return  # lists need padding only if their lengths differ, and only at the end
    padded_scores, last = scores[padding], scores[:, -1:].expand_as(scores)[padding]
    # A model gives all padding of a list the same score.
    if shortest + 1 < grade.shape[1] and bool(padded_scores.isfinite().all()) and padded_scores.equal(last):
        warn(
            "Read negative grades at the ends of lists as unjudged candidates, though those of a list have equal"
            " scores; if they are padding, pass mask=target >= 0"
        )
    elif not grade.is_floating_point() and longest < int(grade.max()) < grade.shape[1]:
        ordered = grade.sort(-1).values
        if not bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
            warn("Read target as grades, though all numbers of a list differ; if they are ids, pass list(target)")


def _flat(preds: Tensor, batch: Batch, tie_break: Tensor | None, validate: bool) -> FlatRows:
    if batch.indexes is None:
        raise ValueError(
            f"Expected indexes [{preds.shape[0]}] naming the query of each row of preds, got None;"
            f" pass group_sizes, the number of rows of each query, or indexes=[0] * {preds.shape[0]} for a single query"
        )
    if preds.dim() != 1:
        raise ValueError(f"Expected flat preds [row] together with indexes, got preds of shape {list(preds.shape)}")
    checks.check_floating(preds, "preds", "scores in flat rows")
    if batch.exclude is not None:
        raise ValueError("Expected no exclude for flat rows, got exclude; leave the rows out, or pass mask [row]")
    target, indexes = checks.on_grid(batch.target, "target", preds), checks.on_grid(batch.indexes, "indexes", preds)
    mask = None if batch.mask is None else checks.on_grid(batch.mask, "mask", preds, dtype=torch.bool)
    tie_break = None if tie_break is None else checks.on_grid(tie_break, "tie_break", preds)
    if indexes.is_floating_point() or indexes.is_complex() or indexes.dtype in (torch.bool, torch.uint64):
        raise TypeError(
            f"Expected integer indexes that int64 can hold, got {indexes.dtype}{checks.as_integers(indexes, 'indexes')}"
        )
    (grade, errors), indexes = checks.grades(target, preds.device, mask), checks.comparable(indexes)
    if tie_break is not None:
        errors = errors + checks.bad_tie_break(tie_break, mask, indexes=indexes)
    return FlatRows(errors, validate, preds, grade, indexes, mask, tie_break)


def _ranked_ids(ids: Tensor, batch: Batch, validate: bool) -> RankedIds:
    if batch.tie_break is not None:
        raise ValueError("Expected no tie_break for integer preds (ids already ranked), got tie_break; leave it out")
    mask = None if batch.mask is None else checks.on_grid(batch.mask, "mask", ids, dtype=torch.bool)
    ids = checks.integer_ids(ids, "preds", "target")
    judged, errors = checks.judged_items(batch.target, ids, "integer preds (ids, best first)", limit=None)
    pairs = None
    if batch.exclude is not None:
        pairs, bad = checks.excluded_pairs(batch.exclude, ids, catalogue=False)
        errors = errors + bad
    # Engines do not support empty rows, so lists without positions get one position of padding.
    if not ids.shape[1]:
        ids, mask = ids.new_full((ids.shape[0], 1), -1), None
    return RankedIds(errors, validate, ids.long(), judged, mask, pairs)


def notice_scores(layout: RankedIds) -> None:
    """Warn if integers that are read as ranked ids are probably scores. On the CPU only, because values are read."""
    ids, judged = layout.ids, layout.judged
    if not ids.is_cpu or layout.mask is not None:
        return
    numbers, (queries, columns) = ids.numpy(), ids.shape
    why = ""
    # Ids may be padded with two different numbers, such as -1 and -100, by two tools.
    if ids.numel() and numbers.min() < -2 and len(numpy.unique(numbers[numbers < 0])) > 2:
        why = "though they have more than two different negative numbers"
    elif judged.labels and 1 < columns <= queries:
        label = judged.items.unsqueeze(-1).numpy()
        # With so many queries it is improbable that all labels are small ids, and that no label is in its list.
        if label.min() >= 0 and label.max() < columns and not (numbers == label).any():
            why = f"though no label is in its list and every label is the number of one of the {columns} columns"
    if why:
        warn(f"Read integer preds as ranked ids, {why}; if they are scores, pass preds.float()")


def priced(layout: Layout, cost: Any, preds: Tensor) -> Layout:
    """The layout of ``preds`` with the cost of each candidate, or of each id; counts those negative or not finite.

    Raises:
        ValueError: the costs have another shape.
    """
    assert isinstance(layout, CatalogueLayout | DenseLayout | RankedIds)
    cost = widened(checks.check_tensor(cost, "cost").detach().to(preds.device))
    listed = layout.ids >= 0 if isinstance(layout, RankedIds) else layout.scores > -math.inf
    if isinstance(layout, RankedIds) and cost.dim() == 1:  # an id without a cost gets NaN, a bad value
        cost = torch.nn.functional.pad(cost, (0, 1), value=math.nan)[preds.long().clamp(0, len(cost))]
    elif cost.shape not in (preds.shape, preds.shape[1:]):
        raise ValueError(f"Expected cost in the shape of preds {list(preds.shape)}, got {list(cost.shape)}")
    # The layout of empty lists has a column of padding.
    cost = cost.expand(preds.shape) if preds.shape[1] else cost.new_zeros(listed.shape)
    listed = listed if layout.mask is None else listed & layout.mask
    good = cost.isfinite() & (cost >= 0)
    errors = checks.count(checks.Problem.BAD_WEIGHTS, listed > good, layout.ignored, layout.errors)
    return replace(layout, costs=torch.where(good, cost, 0.0), errors=errors)


@dataclass(frozen=True, eq=False)
class Shard:
    """This worker's part of a catalogue."""

    #: process group of the workers; None = the default group
    group: Any
    #: number of this worker's first item in the whole catalogue
    offset: int
    #: number of items of all workers
    total: int
    #: largest number of items of one worker; all workers choose their chunk size by it, so that it is the same
    longest: int

    @classmethod
    def of(cls, items: int, queries: int, group: Any, device: torch.device) -> Shard:
        """Number the items of all workers in the order of the workers, with one collective.

        Raises:
            ValueError: the workers have different numbers of queries; raised on all workers.
        """
        sizes = torch.zeros((dist.get_world_size(group), 2), dtype=torch.int64, device=device)
        rank = dist.get_rank(group)
        sizes[rank] = torch.tensor([items, queries], device=device)  # the sum of one-row tables is the whole table
        dist.all_reduce(sizes, group=group)
        counts, seen = ([int(x) for x in column] for column in sizes.T.tolist())
        if len(set(seen)) > 1:
            raise ValueError(
                f"Expected the same queries on every worker of a sharded catalogue, got {seen} queries;"
                " pass all queries on every worker"
            )
        return cls(group, sum(counts[:rank]), sum(counts), max(counts))

    def sum(self, *parts: Tensor) -> list[Tensor]:
        """Sums of tensors over the workers, in one collective; each has the shape and dtype of its part."""
        # In float64, scores of every dtype and counts below 2 ** 53 are exact.
        flat = torch.cat([part.reshape(-1).to(torch.float64) for part in parts])
        dist.all_reduce(flat, group=self.group)
        split = flat.split([part.numel() for part in parts])
        return [total.reshape(part.shape).to(part.dtype) for total, part in zip(split, parts)]

    def gather(self, part: Tensor) -> list[Tensor]:
        """The tensors of all workers, which have one shape, in the order of the workers."""
        wide = part.to(torch.float64)
        gathered = [torch.empty_like(wide) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(gathered, wide, group=self.group)
        return [other.to(part.dtype) for other in gathered]


@contextmanager
def progress_bar(
    show: bool, doing: str = "ranking", unit: str = "product", delay: float = 0
) -> Iterator[Callable[[int], None]]:
    """Context with a progress bar; yields the function that moves it, which does nothing if ``show`` is False.

    The bar appears after ``delay`` seconds. Call the function with a number of steps to come, and with -n after n
    steps.

    Raises:
        ImportError: tqdm is not installed.
    """
    if not show:
        yield lambda change: None
        return
    with imported("tqdm.auto", instead="pass progress=False").tqdm(total=0, desc=doing, unit=unit, delay=delay) as bar:

        def step(change: int) -> None:
            if change < 0:
                bar.update(-change)
            else:
                bar.total += change
                bar.refresh()

        yield step


def embedded(
    queries: Tensor,
    catalogue: Tensor,
    relevant: object,
    exclude: object,
    similarity: str,
    chunk_size: int | None,
    shard: Callable[[int, int], Any] | None,
    progress: Callable[[int], None],
    precision: str | None,
) -> EmbeddedLayout:
    """Check embeddings [query, dimension] and [item, dimension], and convert them to a canonical layout.

    The arguments are as in :meth:`torchrank.Ranking.from_embeddings`. ``shard`` is a function from the numbers of items
    and of queries to this worker's part of the catalogue; None = this process has the whole catalogue.
    """
    if similarity not in ("dot", "cosine", "hamming"):
        raise ValueError(
            f"Expected similarity to be 'dot', 'cosine' or 'hamming', got {similarity!r}; for a distance, pass"
            " Ranking.from_score_blocks(lambda: (-torch.cdist(queries, part) for part in items.split(4096)), relevant)"
        )
    for name, x in (("queries", queries), ("items", catalogue)):
        if similarity == "hamming" and x.dtype not in (torch.uint8, torch.int8):
            raise TypeError(
                f"Expected {name} to be packed bits in uint8, got {x.dtype}; pass numpy.packbits({name} > 0, axis=-1)"
            )
        if similarity == "cosine":
            checks.check_floating(x, name, "embeddings for similarity='cosine'")
        elif similarity == "dot" and x.dtype != torch.int8:
            checks.check_floating(x, name, "or int8 embeddings, or packed bits with similarity='hamming'")
    if queries.dim() != 2 or catalogue.dim() != 2 or queries.shape[1] != catalogue.shape[1]:
        raise ValueError(
            "Expected queries [query, dimension] and items [item, dimension] of one dimension, got shapes"
            f" {list(queries.shape)} and {list(catalogue.shape)}"
        )
    if queries.dtype != catalogue.dtype or queries.device != catalogue.device:
        common = torch.promote_types(queries.dtype, catalogue.dtype)
        way_out = "pack both alike" if similarity == "hamming" else f"pass both as .to({common})"
        raise ValueError(
            "Expected queries and items of one dtype on one device, got"
            f" {queries.dtype} on {queries.device} and {catalogue.dtype} on {catalogue.device}"
            + (f"; {way_out}" if queries.dtype != catalogue.dtype else "")
        )
    if precision not in (None, "highest", "tf32", "tf32x3", "bf16"):
        raise ValueError(f"Expected precision to be None, 'highest', 'tf32', 'tf32x3' or 'bf16', got {precision!r}")
    if precision is not None and not queries.is_floating_point():
        raise ValueError(
            f"Expected no precision for {queries.dtype}, whose products are exact, got {precision!r}; leave it out"
        )
    chunk_size = integer("chunk_size", chunk_size, least=1)
    queries, catalogue = queries.detach(), catalogue.detach()
    if similarity == "cosine":
        with in_batch(queries.device):
            queries, catalogue = (torch.nn.functional.normalize(x, dim=-1) for x in (queries, catalogue))
    elif similarity == "hamming":
        # Half of the sum of the signs' products is half of the number of bits, minus the number of differing ones.
        precision, catalogue = "highest", catalogue.view(torch.uint8)
        queries = signs(queries.view(torch.uint8)).to(torch.float32) / 2
    elif queries.dtype == torch.int8:
        # Products are at most 2 ** 14, and float32 has all integers up to 2 ** 24.
        precision, queries = "highest", queries.to(torch.float32 if queries.shape[1] <= 2**10 else torch.float64)
    if precision == "bf16":
        queries, catalogue = queries.bfloat16(), catalogue.bfloat16()
    part = None if shard is None else shard(len(catalogue), len(queries))
    offset, total, longest = (0, *[len(catalogue)] * 2) if part is None else (part.offset, part.total, part.longest)
    # An expanded tensor has the shape that the checks compare with, and takes no memory.
    grid = queries.new_empty(1).expand(len(queries), max(1, total))
    judged, errors = checks.judged_items(relevant, grid, "queries [Q, dimension]", limit=total)
    pairs, bad = checks.excluded_pairs(exclude, grid)
    chunk = max(1, min(chunk_size or _chunk(longest, queries), longest))
    return EmbeddedLayout(
        errors + bad, True, queries, catalogue, judged, chunk, pairs, offset, max(1, total), part, progress, precision
    )


def _chunk(items: int, queries: Tensor) -> int:
    """Number of items to score at a time.

    On a CPU so few that the scores stay in its cache. On other devices the scores are as wide as high, if there are so
    many queries: so the embeddings are read least often. And a copy of so many items, in the dtype of the products, is
    no larger than the scores.
    """
    if queries.is_cpu:
        most = min(items, costs.now.product // max(16, queries.shape[1]))
        return min(most, costs.now.cached_items) if items > 4 * costs.now.cached_items else most
    room, step = costs.now.products(queries), 2**8  # rows of the scores are aligned
    width = max(1, room // max(1, min(len(queries), math.isqrt(room)), queries.shape[1]) // step) * step
    products = max(1, -(-items // width))
    return min(items, -(-items // products // step * step))


def streamed(blocks: object, relevant: object, exclude: object, top_k: int | None) -> StreamedLayout:
    """Check score blocks [query, item], and convert them to a canonical layout.

    ``blocks`` is an iterable of tensors or a function that returns one; the rest is as in
    :meth:`torchrank.Ranking.from_score_blocks`.
    """
    if not callable(blocks) and not isinstance(blocks, Iterable):
        raise TypeError(f"Expected blocks to be an iterable of score blocks or a function, got {type(blocks).__name__}")
    source = blocks if callable(blocks) else lambda: blocks
    again = callable(blocks) or iter(blocks) is not blocks  # an iterator is its own iterator, and can be read once
    # Counting needs the scores of the relevant items first, so it reads the blocks twice. A top k needs one reading.
    if not again and top_k is None:
        raise ValueError(
            "Expected blocks that can be read twice, or top_k, got an iterator that can be read only once:"
            f" {type(blocks).__name__}; pass a list or a function that returns an iterator, or set top_k"
        )
    ahead = iter(source())
    first = next(ahead, None)
    if first is None:
        raise ValueError("Expected at least one block of scores [query, item], got none")
    first = _checked_block(first, checks.tensor_of(first))
    begun = [chain([first], ahead)]  # the first reading goes on after the block that was read for its shape

    def read() -> Iterator[Tensor]:
        for block in begun.pop() if begun else source():
            yield _checked_block(block, first)

    # The number of columns is unknown before the reading. The engine counts the items beyond it then.
    grid = first.new_empty(1).expand(len(first), checks.UNKNOWN)
    judged, errors = checks.judged_items(relevant, grid, "blocks [Q, item] of scores", limit=checks.UNKNOWN)
    pairs, bad = checks.excluded_pairs(exclude, grid)
    return StreamedLayout(errors + bad, True, read, judged, first.dtype, again, pairs)


def _checked_block(block: object, first: Tensor) -> Tensor:
    block = checks.check_tensor(block, "each of blocks")
    checks.check_floating(block, "block", "scores")
    if block.dim() != 2 or first.dim() != 2 or len(block) != len(first) or block.dtype != first.dtype:
        raise ValueError(
            "Expected blocks of scores [query, item] of the same queries and one dtype, got"
            f" {list(block.shape)} {block.dtype} after {list(first.shape)} {first.dtype}"
        )
    return block.detach()
