"""The class :class:`Ranking`: the ranks and grades of the judged candidates, which are the input of every measure."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from torchrank.hardware import costs
from torchrank.hardware.devices import autocast_off, order_of, widened, widest_float
from torchrank.hardware.graphs import eager
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import ALL, Layout, Need, groups
from torchrank.layouts.catalogues import Shard, embedded, progress_bar, streamed
from torchrank.layouts.checks import Problem, check_tensor, count, integer_ids, judged_items, tensor_of
from torchrank.layouts.conversions import check_items, grouped, identifiers, repeated
from torchrank.layouts.conversions import found as position_of
from torchrank.names.arguments import integer, number, one_of
from torchrank.names.labels import quantity_of
from torchrank.names.types import Array, Pairs, Repeats
from torchrank.ranking.budgets import cutoffs, priced
from torchrank.ranking.quantities import PER_ENTRY, Draw, Quantities, depth_of


@dataclass(frozen=True, eq=False)
class QueryNames:
    """The id of each query, and its group if there are groups.

    Args:
        ids: the ids, an object with ``tolist``, so that text is decoded only where it is read.
        groups: the distinct groups; None = there are no groups.
        group: int [query], the number of the group of each query; -1 = in none.
    """

    ids: Any
    groups: list[Hashable] | None = None
    group: np.ndarray | None = None

    def group_list(self) -> list[Hashable] | None:
        """The group of each query; None in its place = in none."""
        if self.groups is None or self.group is None:
            return None
        groups = [*self.groups, None]  # -1 is the last one
        return [groups[number] for number in self.group.tolist()]


@dataclass(frozen=True)
class Tolerance:
    """A score within ``atol + rtol * |positive|`` of a positive is tied with it."""

    atol: float = 0.0
    rtol: float = 0.0

    @classmethod
    def of(cls, atol: float, rtol: float) -> Tolerance:
        """A tolerance of checked numbers.

        Raises:
            ValueError: a number is negative, or not finite.
        """
        number("atol", atol, least=0)
        number("rtol", rtol, least=0)
        return cls(atol, rtol)

    def snapped(self, scores: Tensor, positives: Tensor) -> Tensor:
        """Scores [query, candidate], with the nearest positive in place of each score that is tied with it.

        ``positives`` are scores [query, positive], in any order; NaN and infinite ones are tied with no other score.
        """
        if not (self.atol or self.rtol) or not positives.shape[1]:
            return scores
        ordered = positives.sort(dim=-1).values.contiguous()
        behind = torch.searchsorted(ordered, scores.contiguous())
        best, gap = scores, torch.full_like(scores, float("inf"))
        for place in (behind - 1, behind):
            near = ordered.gather(-1, place.clamp(0, ordered.shape[1] - 1))
            distance = (scores - near).abs()
            closer = (distance <= self.atol + self.rtol * near.abs()) & (distance < gap) & near.isfinite()
            best, gap = torch.where(closer, near, best), torch.where(closer, distance, gap)
        return best


@dataclass(frozen=True, eq=False)
class Ranking(Quantities):
    """Ranks and grades of the judged candidates, one row of entries per query.

    Every layout is converted to a ``Ranking``, and every measure reads a ``Ranking``. With ties, a rank is an interval:
    the rank of an entry is uniform on ``[first, first + tied - 1]``. A judged candidate that was not retrieved is also
    an entry, because recall and the ideal order include this candidate. A ``Ranking`` never changes; derived quantities
    are cached and shared.

    Fields: ``first``, ``tied`` float64 [query, entry]; ``grade`` [query, entry]; ``valid`` bool [query, entry];
    ``num_candidates`` float64 [query]; ``errors`` int64 [kind]; ``depth``, an upper bound on the ranks of tied
    candidates; ``reach``, the last exact rank, or None if all ranks are exact.

    Bad values (NaN, indices out of range, duplicates) are counted in ``errors``, and raise an error when the ranking is
    used: ``score`` raises at once; after ``update``, ``compute`` raises on all workers. Constructors raise TypeError or
    ValueError if arguments do not fit together.

    Example:
        >>> import torch, torchrank as tr
        >>> ranking = tr.Ranking.from_label(torch.tensor([[0.1, 0.9, 0.9, 0.3]]), torch.tensor([2]))
        >>> ranking.first, ranking.tied, ranking.num_candidates
        (tensor([[1.]], dtype=torch.float64), tensor([[2.]], dtype=torch.float64), tensor([4.], dtype=torch.float64))
        >>> tr.MRR().score(ranking)  # rank 1 or rank 2, equally likely: (1 + 1/2) / 2
        tensor([0.7500], dtype=torch.float64)
        >>> ranking
        Ranking(num_queries=1, num_entries=1, device='cpu')
    """

    _names: QueryNames | None = field(default=None, init=False, repr=False)

    def __repr__(self) -> str:
        # Sizes come from shapes and include padding, so that printing neither joins parts nor waits for an accelerator.
        sizes = f"num_queries={self.num_queries}, num_entries={self.size}, device={str(self.num_candidates.device)!r}"
        sampled = f", num_negatives={self.draw.num_negatives}" if self.draw else ""
        return f"Ranking({sizes}{sampled})"

    # The engine and `tables` import this module, so it imports them late.

    @staticmethod
    def rank(layout: Layout, need: Need = ALL) -> Ranking:
        """Rank a batch in canonical form, at least the part that will be read."""
        from torchrank.engine.rank_layout import rank_whole

        return rank_whole(layout, need)

    @classmethod
    def join(cls, rankings: Iterable[Ranking]) -> Ranking:
        """Join rankings of different queries into one ranking. In each, all judged candidates must be entries."""
        parts = tuple(rankings)
        if len(parts) == 1:  # a single part has its queries in order
            return parts[0] if parts[0].queries is None else replace(parts[0], queries=None)
        return Rankings(parts)

    # ---- from each layout --------------------------------------------------------------------------------------

    @classmethod
    @eager
    def from_scores(
        cls,
        preds: Array,
        target: Any,
        *,
        mask: Array | None = None,
        exclude: Pairs | None = None,
        tie_break: Array | None = None,
        groups: Array | None = None,
        cost: Array | None = None,
    ) -> Ranking:
        """Rank candidates by scores. All constructors also accept arrays and lists of numbers in place of tensors.

        Args:
            preds: floating [query, candidate].
            target: grades [query, candidate]; or the column of the relevant candidate, int [query], negative = nothing
                relevant, but -100 leaves the query out; or a (query, item) or (query, item, grade) tuple of 1-D
                tensors; or a sparse matrix of SciPy [query, item] of grades; or a list of one id tensor per query.
            mask: bool [query, candidate] or [candidate], True for real candidates, False for padding.
            exclude: (query, item) tuple of 1-D tensors, or a list of one id tensor per query: pairs that are not
                candidates, unless they are relevant.
            tie_break: [query, candidate] or [candidate]; the higher value ranks first among equal scores.
            groups: int [candidate] or [query, candidate], the same number for candidates that are ranked as one;
                negative = in no group. See :meth:`torchrank.RankingMetric.update`.
            cost: [candidate] or [query, candidate], finite and >= 0: the cost of each candidate, such as its number of
                tokens; costs of padding are not read. A cutoff such as "recall@2000tok" counts the first ranks whose
                costs add up to at most 2000; see ``top_k`` of :class:`torchrank.RankingMetric`.

        Raises:
            TypeError, ValueError: the arguments do not fit together.

        Example:
            >>> import torch, torchrank as tr
            >>> scores, tokens = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([900, 800, 700])
            >>> ranking = tr.Ranking.from_scores(scores, torch.tensor([[1, 1, 1]]), cost=tokens)
            >>> tr.parse("recall@2000tok").score(ranking)  # the first two cost 1,700
            tensor([0.6667], dtype=torch.float64)
        """
        if cost is not None and (exclude is not None or groups is not None):
            raise ValueError(
                "Expected no exclude and no groups together with cost; pass a mask that is False for other candidates"
            )
        options: Any = {"mask": mask, "tie_break": tie_break}
        layout = arrange(preds, target, exclude=exclude, groups=groups, scores=True, **options)
        if cost is None:
            return cls.rank(layout)
        return cls.rank(priced(layout, check_tensor(cost, "cost"), tensor_of(preds)), Need(all_candidates=True))

    @classmethod
    @eager
    def from_label(
        cls,
        preds: Array,
        label: Array,
        *,
        mask: Array | None = None,
        exclude: Pairs | None = None,
        tie_break: Array | None = None,
        groups: Array | None = None,
    ) -> Ranking:
        """Rank scores [query, item] over a catalogue with one relevant item per query: ``label`` int [query].

        With a negative label nothing is relevant, but -100 leaves the query out, as in cross-entropy.
        """
        label, preds = check_tensor(label, "label"), check_tensor(preds, "preds")
        if label.dim() != 1:
            raise ValueError(f"Expected label of shape [{len(preds)}], got {list(label.shape)}")
        return cls.from_scores(preds, label, mask=mask, exclude=exclude, tie_break=tie_break, groups=groups)

    @classmethod
    @eager
    def from_flat(
        cls,
        preds: Array,
        target: Array,
        indexes: Array | None = None,
        *,
        group_sizes: Array | None = None,
        mask: Array | None = None,
        tie_break: Array | None = None,
        groups: Array | None = None,
        judged: bool = False,
    ) -> Ranking:
        """Rank flat rows: one row per candidate, with the index of its query in ``indexes``.

        All arguments are [row], except ``group_sizes``, int [query], which replaces ``indexes``: the number of rows of
        each query, one query after the other. ``groups`` are as in :meth:`from_scores`. The queries of the ranking are
        in ascending order of index. Entries are the relevant candidates, or with ``judged=True`` all candidates, padded
        to the longest list. Measures of judged or irrelevant candidates need ``judged=True``.

        Example:
            >>> import torchrank as tr
            >>> ranking = tr.Ranking.from_flat([0.9, 0.4, 0.7, 0.1, 0.3], [0, 1, 0, 0, 2], group_sizes=[2, 3])
            >>> tr.MRR().score(ranking)
            tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        rows = arrange(
            preds, target, indexes=indexes, group_sizes=group_sizes, mask=mask, tie_break=tie_break, groups=groups
        )
        return cls.rank(rows, Need(relevant=not judged))

    @classmethod
    @eager
    def from_ids(
        cls,
        ids: Array,
        relevant: Any,
        *,
        mask: Array | None = None,
        exclude: Pairs | None = None,
        groups: Array | None = None,
        repeats: Repeats = "error",
        cost: Array | None = None,
    ) -> Ranking:
        """Make a ranking of lists of ids, best first: int [query, position], negative = padding.

        ``relevant``: ids [query], -100 leaves the query out; [query, entry] padded with negatives; a list of one id
        tensor per query; or a (query, id) or (query, id, grade) tuple of 1-D tensors. ``groups``: int [id], the group
        of each id; ``repeats``: the treatment of an id that occurs again in the same list; for both see
        :meth:`torchrank.RankingMetric.update`. ``cost``: [id] or [query, position], as in :meth:`from_scores`.

        Example:
            >>> import torch, torchrank as tr
            >>> chunks, documents = torch.tensor([[0, 1, 2]]), torch.tensor([7, 7, 8])
            >>> tr.NDCG().score(tr.Ranking.from_ids(chunks, [torch.tensor([0, 1])], groups=documents))  # 7, then 8
            tensor([1.], dtype=torch.float64)
            >>> tr.MRR().score(tr.Ranking.from_ids([[5, 5, 6]], torch.tensor([6]), repeats="first"))  # 5, then 6
            tensor([0.5000], dtype=torch.float64)
        """
        ids = check_tensor(ids, "ids")
        if ids.is_floating_point():
            raise TypeError(
                f"Expected ids to be integer, best first, got {ids.dtype}; pass scores to Ranking.from_scores"
            )
        layout = arrange(ids, relevant, mask=mask, exclude=exclude, groups=groups, repeats=repeats)
        if cost is None:
            return cls.rank(layout)
        if exclude is not None or groups is not None or repeats != "error":
            raise ValueError("Expected no exclude, groups and repeats with cost; remove such ids from the lists")
        cost = check_tensor(cost, "cost").to(ids.device)
        if cost.dim() == 1:  # an id without a cost gets NaN, a bad value
            cost = pad(widened(cost), (0, 1), value=math.nan)[ids.long().clamp(0, len(cost))]
        return cls.rank(priced(layout, cost, ids), Need(all_candidates=True))

    @classmethod
    @eager
    def from_generated(cls, beams: Array, target: Any, ids_of: Array, *, invalid: str = "hold") -> Ranking:
        """Rank the items of generated identifiers, such as the semantic ids of generative retrieval.

        An identifier of c items fills c ranks, and its items are tied over these ranks. So at the top of a list, one
        relevant item among them is 1 / c of a hit at rank 1. A repeated identifier is left out, even if it has no item,
        and the identifiers behind it move up.

        Args:
            beams: int [query, beam], best first, or [query, beam, level] for identifiers of several codes; negative =
                padding.
            target: relevant items, in the form of ``relevant`` of :meth:`from_ids`. The id of an item is the number of
                its row in ``ids_of``.
            ids_of: int [item] or [item, level], the identifier of each item.
            invalid: the treatment of an identifier without an item: "hold" = the identifier fills a rank and is not
                relevant; "drop" = the identifier is left out.

        Raises:
            TypeError, ValueError: the arguments do not fit together, or ``target`` has identifiers instead of items.

        Example:
            >>> import torch, torchrank as tr
            >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])  # items 0 and 1 share an identifier
            >>> beams = torch.tensor([[[7, 7], [0, 1], [2, 0]]])  # of no item, of two items, of one item
            >>> [tr.HitRate(k).score(tr.Ranking.from_generated(beams, [[1]], ids_of)).item() for k in (1, 2, 3)]
            [0.0, 0.5, 1.0]
        """
        one_of("invalid", invalid, ("hold", "drop"))
        numbers, of_item, counts = identifiers(check_tensor(beams, "beams"), check_tensor(ids_of, "ids_of"))
        check_items(target, ids_of)
        grid = numbers.new_empty((), dtype=torch.float32).expand(len(numbers), len(of_item))
        judged, errors = judged_items(target, grid, "beams", limit=len(of_item))
        items, grade = judged.rectangle()
        new = ~repeated(numbers) & (numbers >= 0)
        sizes = torch.where(new, counts.clamp_min(int(invalid == "hold")), 0)
        beam = position_of(torch.where(items < 0, -1, of_item[items.clamp_min(0)]), torch.where(new, numbers, -1))
        stop, tied = (pad(x, (1, 0)).gather(-1, beam).to(widest_float(beam.device)) for x in (sizes.cumsum(-1), sizes))
        length, first = sizes.sum(-1).to(tied), stop - tied + 1
        ranking = cls.in_rank_order(first, tied, grade, items >= 0, length, errors, depth_of(first, tied))
        return replace(ranking, ignored=judged.ignored)

    @classmethod
    @eager
    def from_rankings(cls, first: Array, second: Array, changed: Array | None = None) -> Ranking:
        """Make a ranking that compares two lists of ids per query, for rank correlations and overlaps.

        Both lists are int [query, position], best first, negative = padding. Entries are the ids of both lists. An
        id has its rank from ``first``. The grade of an id is its position in ``second``, counted from the end: 1 for
        the last id, and -inf for an id that ``second`` lacks. All ids that a list lacks are tied behind the list.
        ``changed``, int [query, id], negative = padding, are the ids that :class:`torchrank.PMRR` reads.

        Raises:
            TypeError: a list is not integer.
            ValueError: a list is not [query, position], or the lists have different numbers of queries.

        Example:
            >>> import torch, torchrank as tr
            >>> ranking = tr.Ranking.from_rankings(torch.tensor([[7, 8, 9]]), torch.tensor([[7, 9, 8]]))
            >>> tr.KendallTau().score(ranking), tr.Overlap(top_k=2).score(ranking)
            (tensor([0.3333], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
        """
        first, second = (
            check_tensor(x, name, "integer ids, best first") for x, name in ((first, "first"), (second, "second"))
        )
        for name, x in (("first", first), ("second", second)):
            if x.is_floating_point() or x.dtype in (torch.bool, torch.uint64):
                raise TypeError(f"Expected {name} to be integer ids that int64 can hold, best first, got {x.dtype}")
        if first.dim() != 2 or second.dim() != 2 or len(first) != len(second):
            raise ValueError(
                "Expected first and second [query, position] with the same number of queries, got shapes"
                f" {list(first.shape)} and {list(second.shape)}"
            )
        first, second = first.detach().long(), second.detach().to(first.device).long()
        entries = both_lists(first, second)
        shares = None if changed is None else shares_of(changed, torch.cat([first, second], -1), entries[0])
        return cls.in_rank_order(*entries, depth=1, changed=shares, all_candidates=True)

    @classmethod
    @eager
    def from_ranks(cls, ranks: Array, num_candidates: Array | int | None = None) -> Ranking:
        """Make a ranking from the ranks of the relevant candidates.

        Args:
            ranks: [query] or [query, entry], the rank of each relevant candidate: 1 = best, infinite = not retrieved,
                negative = padding; in [query, entry] 0 is padding too. Fractional ranks are allowed. The ranks of a
                query belong to one list, so no two are equal. Pass filtered ranks as [query], with a separate query for
                each relevant candidate.
            num_candidates: length of the lists, a number or [query]. If the length is unknown, measures that need the
                length are NaN: mean rank if a candidate was not retrieved, fall-out, precision without ``top_k``.

        Bad values are NaN, 0 in ranks [query], ranks between 0 and 1, ranks beyond ``num_candidates``, and equal ranks
        in one query.

        Raises:
            TypeError: ranks are not a tensor of numbers.
            ValueError: ranks are neither [query] nor [query, entry].
        """
        ranks = check_tensor(ranks, "ranks")
        if ranks.is_complex() or ranks.dtype == torch.bool:
            raise TypeError(f"Expected ranks to be integer or floating point, got {ranks.dtype}")
        if ranks.dim() not in (1, 2):
            raise ValueError(f"Expected ranks of shape [query] or [query, entry], got {list(ranks.shape)}")
        first = ranks.detach().to(widest_float(ranks.device))
        zeros = first == 0 if first.dim() == 1 else first.new_zeros(0, dtype=torch.bool)  # ranks counted from 0
        first = first.unsqueeze(-1) if first.dim() == 1 else first
        first = first if first.shape[1] else first.new_zeros((len(first), 1))
        length = float("nan") if num_candidates is None else num_candidates
        if isinstance(length, int | float):  # as_tensor would copy the number and wait
            length = first.new_full((), length)
        length = torch.as_tensor(tensor_of(length), dtype=first.dtype, device=first.device).clone().expand(len(first))
        valid = ~(first <= 0)
        finite = first.isfinite()
        # Ranks may be as large as float64 allows, because only ties need tables over ranks.
        bad = (valid & (first < 1)) | (finite & (first > length.unsqueeze(-1))) | first.isnan()
        ordered = first.sort(dim=-1).values
        equal = (ordered[:, 1:] == ordered[:, :-1]) & ordered[:, 1:].isfinite() & (ordered[:, 1:] > 0)
        return cls.in_rank_order(
            torch.where(finite, first, 1),
            (finite & valid).to(first.dtype),
            valid.to(torch.int8),
            valid,
            length,
            count(Problem.BAD_RANKS, torch.cat([x.flatten() for x in (bad, equal, zeros)])),
            depth=1,
        )

    @classmethod
    @eager
    def from_negatives(
        cls, pos: Array, neg: Array, *, groups: Array | None = None, atol: float = 0.0, rtol: float = 0.0
    ) -> Ranking:
        """Rank positives among sampled negatives by their scores.

        If a model scores positives and negatives by different operations, rounding can differ. Then equal scores look
        different, and a constant model can look perfect. Set a tolerance to treat nearly equal scores as ties.

        Args:
            pos: [query] or [query, positive].
            neg: [query, negative].
            groups: int [positive + negative] or [query, positive + negative], as in :meth:`from_scores`.
            atol: a negative within ``atol + rtol * |positive|`` of the nearest positive is tied with it; >= 0.
            rtol: the relative part of this tolerance; >= 0.

        Example:
            >>> import torch, torchrank as tr
            >>> pos, neg = torch.tensor([0.3000001]), torch.tensor([[0.3, 0.3, 0.1]])
            >>> [tr.HitRate(top_k=1).score(tr.Ranking.from_negatives(pos, neg, atol=a)).item() for a in (0, 1e-6)]
            [1.0, 0.3333333333333333]
        """
        pos, neg = check_tensor(pos, "pos"), check_tensor(neg, "neg")
        tolerance = Tolerance.of(atol, rtol)
        for name, x in (("pos", pos), ("neg", neg)):
            if x.is_complex() or x.dtype == torch.bool:
                raise TypeError(f"Expected {name} to be scores, integer or floating point, got {x.dtype}")
        pos = pos.unsqueeze(-1) if pos.dim() == 1 else pos
        if pos.dim() != 2 or neg.dim() != 2 or len(pos) != len(neg):
            raise ValueError(
                "Expected pos [query] or [query, positive] and neg [query, negative] with the same number of queries,"
                f" got shapes {list(pos.shape)} and {list(neg.shape)}"
            )
        dtype = torch.promote_types(pos.dtype, neg.dtype)
        dtype = dtype if dtype.is_floating_point else widest_float(pos.device)
        with autocast_off(pos.device):
            scores = torch.cat([pos.to(dtype), tolerance.snapped(neg.to(dtype), pos.to(dtype))], dim=-1)
        columns = torch.arange(pos.shape[1], device=pos.device).expand(len(pos), -1)
        return cls.rank(arrange(scores, list(columns), groups=groups))

    @classmethod
    @eager
    def from_embeddings(
        cls,
        queries: Array,
        items: Array,
        relevant: Any,
        *,
        exclude: Pairs | None = None,
        similarity: str = "dot",
        top_k: int | None = None,
        chunk_size: int | None = None,
        group: Any = False,
        groups: Array | None = None,
        progress: bool = False,
        precision: str | None = None,
        atol: float = 0.0,
        rtol: float = 0.0,
    ) -> Ranking:
        """Rank a catalogue by the similarity of embeddings, without the full [query, item] matrix of scores in memory.

        On a CUDA device with Triton, a kernel counts without writing scores to memory, if no query has more than 8
        relevant items, and the embeddings have 16 bits or ``precision`` is "tf32", "tf32x3" or "bf16". At level DEBUG,
        the logger ``torchrank`` tells how each batch is ranked, and why.

        Args:
            queries: floating or int8 [query, dimension]. Products of int8 are exact, so ranks are the same on every
                device and in chunks of every size, and equal products are tied.
            items: [item, dimension], of the same dtype.
            relevant: items int [query], -100 leaves the query out; [query, entry] padded with negatives; a list of one
                id tensor per query; or a (query, item) or (query, item, grade) tuple.
            exclude: (query, item) tuple of 1-D tensors, or a list of one id tensor per query: pairs that are not
                candidates, unless they are relevant.
            similarity: "dot"; "cosine", not of int8; or "hamming" for binary embeddings, packed in uint8 [row, byte] as
                by ``numpy.packbits(x > 0, axis=-1)``, FAISS or Sentence Transformers' "ubinary" (and its "binary" in
                int8): half the number of bits minus the number of bits that differ, which is exact, too. Rank by a
                distance with :meth:`from_score_blocks`.
            top_k: the last rank that metrics will read; saves time if many items are relevant. Metrics that need larger
                ranks raise ValueError.
            chunk_size: number of items to score at a time; None = chosen for the device. At most 64 MB of scores exist
                at a time.
            group: process group whose workers share the catalogue; None = the default group, False = not shared. Pass
                the same ``queries`` and ``relevant`` on every worker, and a different slice of ``items`` on each. Items
                are numbered in the order of the workers. Every worker gets the ranking of the full catalogue.
            groups: int [item], the same number for items that are ranked as one, as in :meth:`from_scores`. Not with
                ``group``.
            progress: show a progress bar; requires tqdm.
            precision: precision of the products. None = the setting of torch, with scores rounded to the dtype of the
                embeddings. Any other value sums in float32 or wider: "highest" = products in float32; "tf32" and
                "tf32x3" = products of numbers rounded to 11 and to about 22 bits on a CUDA device, elsewhere the same
                as "highest"; "bf16" = products of embeddings rounded to bfloat16, on any device.
            atol: an item whose score is within ``atol + rtol * |score|`` of the score of the nearest relevant item is
                tied with this relevant item; >= 0. Then ``(ranking.tied > 1).sum()`` is the number of labels with
                another item within rounding, and :class:`torchrank.TieReport` tells how much metrics depend on such
                ties. Scores of unit vectors have errors of up to about 2 ** -7 in "bf16" and 2 ** -9 in "tf32", so two
                items can change places if their scores differ by less than twice this error.
            rtol: the relative part of this tolerance; >= 0.

        Raises:
            TypeError, ValueError: the arguments do not fit together.

        Example:
            >>> import torch, torchrank as tr
            >>> queries, items = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 1.0], [2.0, 0.0], [1.0, 1.0]])
            >>> tr.MRR().score(tr.Ranking.from_embeddings(queries, items, torch.tensor([2]), chunk_size=2))
            tensor([0.5000], dtype=torch.float64)
        """
        vectors, catalogue = check_tensor(queries, "queries"), check_tensor(items, "items")
        tolerance = Tolerance.of(atol, rtol)
        shard = None if group is False else lambda here, asked: Shard.of(here, asked, group, vectors.device)
        with progress_bar(progress) as step:
            layout = embedded(vectors, catalogue, relevant, exclude, similarity, chunk_size, shard, step, precision)
            ranked: Any = layout if groups is None else grouped(layout, groups)
            ranked = replace(ranked, tolerance=tolerance if atol or rtol else None)
            return cls.rank(ranked, Need(integer("top_k", top_k, least=1)))

    @classmethod
    @eager
    def from_score_blocks(
        cls,
        blocks: Iterable[Array] | Callable[[], Iterable[Array]],
        relevant: Any,
        *,
        exclude: Pairs | None = None,
        groups: Array | None = None,
        top_k: int | None = None,
    ) -> Ranking:
        """Rank a catalogue whose scores come in blocks of items. Each block has the scores of all queries.

        Args:
            blocks: floating [query, item] blocks from left to right: a list or another iterable that can be read twice;
                or a function that returns an iterator and can be called twice; or, with ``top_k``, an iterator.
            relevant: items int [query], -100 leaves the query out; [query, entry] padded with negatives; a list of one
                id tensor per query; or a (query, item) or (query, item, grade) tuple. The numbers of items continue
                from block to block.
            exclude: (query, item) tuple of 1-D tensors, or a list of one id tensor per query: pairs that are not
                candidates, unless they are relevant.
            groups: int [item], the same number for items that are ranked as one, as in :meth:`from_scores`. The scores
                of a group stay in memory until its last item, so place the items of a group next to each other.
            top_k: the last rank that metrics will read. Metrics that need larger ranks raise ValueError.

        Raises:
            TypeError, ValueError: the arguments do not fit together, or blocks differ in queries or dtype.

        Example:
            >>> import torch, torchrank as tr
            >>> blocks = [torch.tensor([[0.2, 0.9]]), torch.tensor([[0.4, 0.1]])]
            >>> tr.MRR().score(tr.Ranking.from_score_blocks(blocks, torch.tensor([2])))
            tensor([0.5000], dtype=torch.float64)
        """
        layout: Any = streamed(blocks, relevant, exclude, top_k)
        return cls.rank(layout if groups is None else grouped(layout, groups), Need(integer("top_k", top_k, least=1)))

    @classmethod
    @eager
    def from_run(
        cls, qrels: Any, run: Any, *, duplicates: str = "error", parent: Any = None, exclude: Any = None
    ) -> Ranking:
        """Rank a run with judgments, as trec_eval does.

        Queries are in the order of ``qrels``; ``query_ids`` has their ids. Scores are compared in double precision.
        Documents with equal scores are ranked by id, the higher id first. For a judged query that the run lacks,
        nothing was retrieved. Queries without judgments are left out. A grade below 0 means that a document was in the
        pool but not judged; such a grade becomes -1. A document of the run without a judgment was outside the pool, and
        gets the grade -2.

        Args:
            qrels: any source that :func:`read_qrels` takes: a path, a frame, a dict ``{query: {document: grade}}``.
            run: any source that :func:`read_run` takes: a path, a frame, a dict ``{query: {document: score}}``.
            duplicates: "error", or which number of a document that occurs twice counts: "first", or "best" = the
                largest.
            parent: the way from a chunk to its document, as in :func:`torchrank.evaluate`: "#" for ids such as
                ``doc#chunk``, a dictionary or a function.
            exclude: pairs of query and document that leave the judgments and the run, as in
                :func:`torchrank.evaluate`.

        Raises:
            ReadingError: a source cannot be read, contains NaN, or contains a document twice.

        Example:
            >>> import torchrank as tr
            >>> ranking = tr.Ranking.from_run({"q": {"a": 1, "b": 0}}, {"q": {"a": 0.5, "b": 0.5, "c": 0.9}})
            >>> tr.MRR().score(ranking), ranking.grade[ranking.valid]  # c, b, a
            (tensor([0.3333], dtype=torch.float64), tensor([-2.,  0.,  1.], dtype=torch.float64))
        """
        from torchrank.tables.joining import rank_run

        return rank_run(qrels, run, duplicates, parent, exclude)  # type: ignore[arg-type]

    @classmethod
    @eager
    def from_table(
        cls,
        frame: Any,
        *,
        query: str | None = None,
        item: str | None = None,
        score: str | None = None,
        rank: str | None = None,
        grade: str | None = None,
        group: str | None = None,
        ties: str = "expected",
        duplicates: str = "error",
    ) -> Ranking:
        """Rank the rows of one data frame, which has both scores and grades.

        Queries, and ``query_ids`` and ``groups`` of the ranking, are in the order of the frame. A row without a score
        (null or NaN) was not retrieved; a row without a grade is unjudged and outside the pool. Warnings count both. A
        row can also be a query with lists of items, scores and grades; lists without scores are ranked as they are.

        Args:
            frame: a data frame of pandas, polars, pyarrow or another library, or a dictionary of columns.
            query: the column of query ids; None = the column with a usual name.
            item: the column of item ids; None = the column with a usual name, if there is such a column.
            score: the column of scores; None = the column with a usual name.
            rank: a column of ranks in place of scores, 1 for the best.
            grade: the column of grades; None = the column with a usual name.
            group: a column with one value per query, for example the language; a missing value = in no group.
            ties: "expected"; "rows" = items with equal scores are ranked in the order of the frame, as in LightGBM; or
                "document" = by id, the higher id first.
            duplicates: "error", or which row of an item that a query has twice counts: "first", or "best" = the row
                with the largest score.

        Raises:
            ReadingError: a column is missing or has other types; a query has an item twice, or two groups.

        Example:
            >>> import torchrank as tr
            >>> frame = {"user_id": [1, 1, 2, 2], "score": [0.5, 0.9, 0.3, 0.1], "label": [1, 0, 0, 1]}
            >>> tr.MRR().score(tr.Ranking.from_table(frame))
            tensor([0.5000, 0.5000], dtype=torch.float64)
        """
        columns = {"query": query, "item": item, "score": score, "rank": rank, "grade": grade, "group": group}
        from torchrank.tables.joining import rank_frame

        return rank_frame(frame, ties=ties, duplicates=duplicates, **columns)  # type: ignore[arg-type]

    def sampled(self, num_negatives: int, *, replacement: bool = False) -> Ranking:
        r"""This ranking under a sampled protocol: measures are expectations over a random draw of negatives.

        In the protocol each relevant candidate is ranked with m negatives, drawn at random from the N candidates that
        are not relevant. Every metric and collection takes the result; the value of a query is the exact expectation
        over all draws. If a of the N candidates are above the relevant candidate, the probability that x of the m
        negatives are above is :math:`\binom{a}{x} \binom{N - a}{m - x} / \binom{N}{m}`, and with replacement x is
        :math:`Binomial(m, a / N)`.

        Sampled values differ from the values of the full list, and can rank two models in the opposite order. Sampled
        values reproduce published numbers for m negatives, without the noise of a single draw. The method reads values,
        so the host waits for an accelerator.

        Source:
            Krichene and Rendle, On sampled metrics for item recommendation, KDD 2020.

        Args:
            num_negatives: m.
            replacement: draw with replacement, so that a negative can be drawn several times.

        Raises:
            ValueError: a query has several relevant candidates, fewer than m negatives, or a rank that is not exact; or
                the grades of relevant candidates differ.

        Example:
            >>> import torch, torchrank as tr
            >>> ranking = tr.Ranking.from_ranks(torch.tensor([201]), num_candidates=10_001)
            >>> metric = tr.HitRate(top_k=10)
            >>> metric.score(ranking), metric.score(ranking.sampled(100))  # on average 2 of 100 negatives are above
            (tensor([0.], dtype=torch.float64), tensor([1.0000], dtype=torch.float64))
        """
        if self.reach is not None:
            raise ValueError(f"Expected a ranking with all ranks exact, got top_k={self.reach}; make it without top_k")
        relevant = self.valid & (self.grade > 0)
        draw = Draw.of(num_negatives, replacement, self.grade[relevant])
        draw.check(self.positive(), relevant.sum(-1))
        return replace(self.joined, draw=draw).with_names(self._names)

    def cutoffs(self, quantity: str, label: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The cutoff of each query for "10%" or "2000tok", float64 [query]; and whether ties decide it, bool [query].

        Ties decide a cutoff if it depends on the order of tied candidates.
        """
        number, unit = quantity_of(quantity)
        if unit != "%":
            if self.costs is None:
                raise ValueError(f"Expected a ranking with costs for {label}; pass Ranking.from_scores(..., cost=...)")
            return cutoffs(self, number)
        cuts = (self.num_candidates * number / 100 - 1e-9).ceil().clamp_min(1)
        if bool(cuts.isnan().any()):
            raise ValueError(f"Expected the lengths of all lists for {label}, got none; pass num_candidates")
        return cuts, torch.zeros_like(cuts, dtype=torch.bool)

    def check(self, need: Need, label: str) -> None:
        """Raise ValueError if this ranking lacks ranks or entries that the metric ``label`` reads."""
        if self.reach is not None and (need.reach is None or need.reach > self.reach):
            ranks = "all ranks" if need.reach is None else f"ranks up to {need.reach}"
            raise ValueError(
                f"Expected a Ranking for {label} with {ranks} exact, got one with top_k={self.reach};"
                f" make it {'without top_k' if need.reach is None else f'with top_k={need.reach}'}"
            )
        if self.draw is not None and (need.all_candidates or not need.relevant):
            raise ValueError(
                f"Expected a measure of relevant candidates for sampled negatives, got {label}, which"
                " also reads irrelevant candidates; use the ranking without sampled()"
            )
        if self.only_relevant and not need.relevant:
            raise ValueError(
                f"Expected a Ranking for {label} with entries of irrelevant candidates, got one without;"
                " make it by Ranking.from_flat(..., judged=True)"
            )
        if need.all_candidates and not self.all_candidates:
            raise ValueError(
                f"Expected a Ranking for {label} with an entry for every candidate, got one of some judged candidates;"
                " make it by Ranking.from_scores with a grade for each candidate, -1 = unjudged"
            )

    # ---- parts, names and intents ----

    def narrowed(self, start: int) -> Iterator[Self]:
        """Cut this ranking into rectangles with little padding, and number its queries.

        Queries without numbers get the numbers from ``start`` on. Padding depends on values, so on an accelerator the
        ranking stays as it is.
        """
        if not self.first.is_cpu or self.subtopics is not None or self.pool is not None:
            yield self
            return
        width, queries = self.first.shape[1], self.queries
        # The size of a query is the column behind its last valid entry. Masked candidates may be invalid before it.
        from_end = self.valid.flip(-1).to(torch.uint8)
        sizes = torch.where(self.valid.any(-1), width - from_end.argmax(-1), 0) if width else self.valid.sum(-1)
        numbers = torch.arange(start, start + self.num_queries, device="cpu") if queries is None else queries
        errors = self.errors
        for rows, wide in groups(sizes, costs.now.rectangle, costs.now.block):
            if wide == width and len(rows) == len(sizes):
                yield self
                return
            cut = {name: x[rows, :wide] for name in PER_ENTRY if (x := getattr(self, name)) is not None}
            yield replace(self.take(rows), **cut, queries=numbers[rows], errors=errors)
            errors = torch.zeros_like(errors)

    def parts(self, all_candidates: bool = False) -> list[Self]:
        """Rectangles of some queries each, with their numbers if they are not in order.

        Their entries are the judged candidates, or all candidates if these are asked for and the ranking has them.
        """
        return [self]

    @property
    def size(self) -> int:
        """Number of entries of all queries, padding included."""
        return self.first.numel()

    def with_names(self, names: QueryNames | None) -> Self:
        """This ranking with ids and groups; for rankings that nobody else has yet."""
        self.__dict__["_names"] = names
        return self

    @property
    def query_ids(self) -> list[Hashable] | None:
        """The id of each query, if the ranking was made of tables; None = it was made of tensors."""
        return None if self._names is None else self._names.ids.tolist()

    @property
    def groups(self) -> list[Hashable] | None:
        """The group of each query, by ``from_table(group=...)``; None in its place = in none; None = no groups."""
        return None if self._names is None else self._names.group_list()

    def with_intents(self, probabilities: Tensor) -> Self:
        """This ranking with a probability of each subtopic, which intent-aware measures have as its weight.

        Without it all subtopics with a relevant candidate are equally likely. Only their shares count, so the
        probabilities of a query need not sum to 1. Reads values, so it waits for an accelerator.

        Source:
            Agrawal, Gollapudi, Halverson and Ieong, Diversifying search results, WSDM 2009, as P(c | q).

        Args:
            probabilities: [subtopic] or [query, subtopic], finite and >= 0.

        Raises:
            TypeError: ``probabilities`` is not a tensor of numbers.
            ValueError: the ranking has no subtopics, the shape is another, or a probability is negative or not finite.

        Example:
            >>> import torch, torchrank as tr
            >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
            >>> ranking = tr.Ranking.from_scores(torch.tensor([[0.9, 0.8, 0.1]]), target)
            >>> tr.PIA(top_k=2).score(ranking.with_intents(torch.tensor([0.9, 0.1])))  # 0.9 * 2/2 + 0.1 * 1/2
            tensor([0.9500], dtype=torch.float64)
        """
        probabilities = check_tensor(probabilities, "probabilities")
        if self.subtopics is None:
            raise ValueError(
                "Expected a ranking with subtopics, got one without;"
                " make it by Ranking.from_scores with a target [query, candidate, subtopic]"
            )
        shape = [self.num_queries, self.num_subtopics]
        if list(probabilities.shape) not in (shape, shape[1:]):
            raise ValueError(f"Expected probabilities of shape {shape[1:]} or {shape}, got {list(probabilities.shape)}")
        intents = probabilities.detach().to(self.first)
        if not bool((intents.isfinite() & (intents >= 0)).all()):
            raise ValueError("Expected probabilities to be finite and >= 0, got others; correct them")
        return replace(self.joined, intents=intents.expand(shape)).with_names(self._names)


class Rankings(Ranking):
    """Rankings of different queries, used as one ranking. Measures read its :meth:`parts`.

    The rankings are joined into one rectangle when a field of the entries is read.

    Args:
        rankings: rankings in which all judged candidates are entries.
        others: a function that returns the ranking with an entry for every candidate, called when such entries are
            read. The function can be pickled.
    """

    def __init__(self, rankings: Iterable[Ranking], others: Callable[[], Ranking] | None = None) -> None:
        parts = tuple(part.joined for part in rankings)
        assert all(part.pool is None for part in parts), "Expected rankings with all judged candidates as entries"
        if any(part.queries is not None for part in parts):
            parts = tuple(numbered(parts))
        order = batch_order([part.queries for part in parts])
        lengths = torch.cat([part.num_candidates for part in parts])
        ignored = together([(part.ignored, part.num_candidates) for part in parts])
        vars(self).update(
            rectangles=parts,
            others=others,
            num_candidates=lengths if order is None else lengths[order],
            errors=torch.stack([part.errors for part in parts]).sum(0),
            depth=max(part.depth for part in parts),
            reach=parts[0].reach,
            ignored=ignored if ignored is None or order is None else ignored[order],
            all_candidates=others is not None or all(part.all_candidates for part in parts),
            only_relevant=parts[0].only_relevant,
            of_labels=others is None and all(part.of_labels for part in parts),
            draw=parts[0].draw,
            _cache={},
        )

    rectangles: tuple[Ranking, ...]
    others: Callable[[], Ranking] | None

    def parts(self, all_candidates: bool = False) -> list[Ranking]:  # type: ignore[override]
        if all_candidates and self.others is not None:
            return self.everything.parts()
        # There may be many rectangles, so measures read copies of them: the cache of a copy is freed with the copy.
        return list(self.rectangles if len(self.rectangles) == 1 else map(replace, self.rectangles))

    @property
    def size(self) -> int:
        return sum(part.first.numel() for part in self.rectangles)

    def take(self, queries: torch.Tensor | slice) -> Ranking:  # type: ignore[override]
        return self.joined.take(queries)

    @cached_property
    def everything(self) -> Ranking:
        """The ranking with an entry for every candidate."""
        assert self.others is not None
        return self.others()

    @cached_property
    def joined(self) -> Ranking:  # type: ignore[override]
        names = ("reach", "ignored", "all_candidates", "only_relevant", "of_labels", "draw")
        shared = {name: getattr(self, name) for name in names}
        if self.others is not None:
            return replace(self.everything.joined, **shared)
        parts, width = self.rectangles, max(part.first.shape[1] for part in self.rectangles)
        lengths = torch.cat([part.num_candidates for part in parts])
        fields: dict[str, Any] = {name: _of_parts(name, parts, width) for name in PER_ENTRY}
        joined = Ranking.in_rank_order(num_candidates=lengths, errors=self.errors, depth=self.depth, **fields)
        order = batch_order([part.queries for part in parts])
        return replace(joined if order is None else joined.take(order), **shared)

    first, tied, grade, valid, subtopics, partly_judged, changed, costs = (
        cached_property(operator.attrgetter(f"joined.{name}")) for name in PER_ENTRY
    )


def _of_parts(name: str, parts: Sequence[Ranking], width: int) -> torch.Tensor | None:
    """A field with a column per entry of several rankings, padded to ``width`` entries; None if none has the field."""
    fields = [getattr(part, name) for part in parts]
    if all(x is None for x in fields):
        return None
    if name == "partly_judged":
        fields = [torch.zeros_like(part.valid) if x is None else x for x, part in zip(fields, parts)]
    if any(x is None for x in fields):
        raise ValueError(f"Expected rankings that all have {name}, or none, got both; join rankings of one kind")
    if len({x.shape[1:] for x in fields}) == 1:
        return torch.cat(fields)
    most = max(math.prod(x.shape[2:]) for x in fields)  # subtopics; others are padding
    return torch.cat(
        [
            pad(x, (0, most - x.shape[2], 0, width - x.shape[1]) if x.dim() > 2 else (0, width - x.shape[1]))
            for x in fields
        ]
    )


def together(parts: Sequence[tuple[Tensor | None, Tensor]]) -> Tensor | None:
    """Join ``ignored`` of several batches, bool [query] or None; each with any tensor [query] for its length."""
    if all(ignored is None for ignored, _ in parts):
        return None
    return torch.cat([torch.zeros_like(x, dtype=torch.bool) if flag is None else flag for flag, x in parts])


def numbered(parts: Sequence[Ranking], start: int = 0) -> list[Ranking]:
    """Number the queries of consecutive parts, the first query with ``start``.

    Parts that have numbers already have them relative to ``start``.
    """
    numbered, first = [], start
    for part in parts:
        stop = start + part.num_queries
        numbers = torch.arange(start, stop, device=part.num_candidates.device)
        numbered.append(replace(part, queries=numbers if part.queries is None else part.queries + first))
        start = stop
    return numbered


def batch_order(queries: Sequence[Tensor | None]) -> Tensor | None:
    """The place of each query of a batch in the joined parts, given the numbers in each part; None if in order."""
    numbers = [part for part in queries if part is not None]
    return order_of(torch.cat(numbers)) if numbers else None


def both_lists(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Ranks of ids from the first of two lists, and grades from the second.

    Entries are the ids of either list. An id's grade is its place from the end of the second list, 1 for the last id,
    or -inf if the second list lacks it.

    Args:
        first: int64 [query, position], negative = padding.
        second: the same.

    Returns:
        ``first``, ``tied``, ``grade``, ``valid``, ``num_candidates`` and ``errors`` of a ranking, entries in any order.
    """
    if not first.shape[1] + second.shape[1]:  # measures never read an empty row
        first = first.new_full((len(first), 1), -1)
    width = first.shape[1]
    ids = torch.cat([first, second], -1)
    in_first, in_second = first >= 0, second >= 0
    dtype = widest_float(ids.device)
    number, length = in_first.sum(-1), in_second.sum(-1, keepdim=True)
    rank = torch.cat([in_first.cumsum(-1), torch.zeros_like(second)], -1)
    grade = torch.cat([torch.zeros_like(first), (length + 1 - in_second.cumsum(-1)) * in_second], -1)
    # The stable sort puts equal ids side by side, the one of the first list before the one of the second.
    ordered, order = ids.sort(dim=-1, stable=True)
    second = order >= width
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    pair = again & second[:, 1:] & ~second[:, :-1]
    # Equal ids of the same list are bad values.
    errors = count(Problem.DUPLICATE_IDS, again & (second[:, 1:] == second[:, :-1]))
    repeated = torch.nn.functional.pad(pair, (1, 0))
    in_both = torch.nn.functional.pad(pair, (0, 1))
    # An id of both lists becomes one entry: its place in the first list takes the grade, its place in the second
    # becomes padding.
    other_grade = torch.where(in_both, grade.gather(-1, order).roll(-1, -1), 0)
    grade = grade + torch.zeros_like(grade).scatter(-1, order, other_grade)
    valid = torch.cat([in_first, in_second], -1) & ~torch.zeros_like(in_both).scatter(-1, order, repeated)
    return (
        rank.to(dtype),
        ((rank > 0) & valid).to(dtype),
        torch.where(grade > 0, grade.to(dtype), float("-inf")),
        valid,
        number.to(dtype),
        errors,
    )


def shares_of(some: object, ids: Tensor, like: Tensor) -> Tensor:
    """The share of each of ``ids`` in ``some`` ids of its query, in the shape of ``like`` [query, entry]."""
    some = integer_ids(check_tensor(some, "changed"), "changed", "both lists").to(ids.device)
    if some.dim() != 2 or len(some) != len(ids):
        raise ValueError(f"Expected changed of shape [{len(ids)}, id], got {list(some.shape)}")
    shares = torch.zeros_like(like)
    for column in some.unsqueeze(-1).unbind(1):
        shares[:, : ids.shape[1]] += (ids == column) & (column >= 0)
    return shares / (some >= 0).sum(-1, keepdim=True)
