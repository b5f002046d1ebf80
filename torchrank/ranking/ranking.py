"""The class :class:`Ranking`: the ranks and grades of the judged candidates, and what measures derive from them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from torchrank.hardware import costs
from torchrank.hardware.devices import (
    constant,
    eager,
    every,
    greatest,
    in_batch,
    largest,
    order_of,
    running_sum,
    scalar,
    surely,
    widest_float,
    worth_reading,
)
from torchrank.layouts.arrange import Shard, arrange, embedded, priced, progress_bar, streamed
from torchrank.layouts.canonical import ALL, BLOCK, Layout, Need, buckets
from torchrank.layouts.checks import Problem, check_tensor, count, integer_ids, judged_items, tensor_of
from torchrank.layouts.conversions import check_items, grouped, identifiers, repeated
from torchrank.layouts.conversions import found as position_of
from torchrank.layouts.neighbors import neighbor_ranks
from torchrank.names.arguments import integer, number, one_of
from torchrank.names.types import Array, Pairs, Repeats

# Fields of a ranking that few rankings have, [query, entry, ...], and all fields with a column per entry.
FURTHER = ("subtopics", "partly_judged", "changed", "costs")
PER_ENTRY = ("first", "tied", "grade", "valid", *FURTHER)

P = ParamSpec("P")

T = TypeVar("T")


def cached(piece: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Decorator that caches a method of a ranking by its arguments, so that measures share its result.

    Pass gains and discounts that compare equal if they compute the same values, not a new lambda for each call.
    """

    @functools.wraps(piece)
    def once(self: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece, args, tuple(kwargs.items()))
        if key in self._cache:
            return self._cache[key]
        found = piece(self, *args, **kwargs)
        if found is not self:  # a ranking in its own cache would keep its memory until Python looks for cycles
            self._cache[key] = found
        return found

    return once


#: methods of a ranking whose result depends on its grades alone
OF_JUDGMENTS = set[Callable[..., Any]]()


def cached_for_judgments(piece: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """As :func:`cached`, for a quantity [query, ...] of the grades alone, see :meth:`Ranking.judged_alike`."""
    OF_JUDGMENTS.add(piece)
    return cached(piece)


def cached_for_ranks(piece: Callable[Concatenate[Any, P], Tensor]) -> Callable[Concatenate[Any, P], Tensor]:
    """As :func:`cached`, for a quantity [query, entry] of ranks only: computed once if all queries have equal ranks."""

    @cached
    @functools.wraps(piece)
    def once(self: Any, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        return piece(self.distinct(), *args, **kwargs).expand(self.first.shape)

    return once


# Measures of pairs count integer grades level by level up to this largest grade.
FEW_LEVELS = 8


@dataclass(frozen=True, eq=False)
class Positive:
    """The only relevant candidate of each query: bool or float64, [query] each."""

    #: whether the query has a relevant candidate
    exists: Tensor
    #: whether it is retrieved; if not, the numbers are 0
    retrieved: Tensor
    #: number of negatives above it
    above: Tensor
    #: number of negatives tied with it
    tied: Tensor
    #: number of all negatives in the list
    negatives: Tensor


@dataclass(frozen=True)
class Draw:
    """A uniform draw of negatives, with which the relevant candidate of each query is ranked.

    The sampled list can have ``num_negatives`` + 3 outcomes: the relevant candidate has one of the ranks 1, 2, ...,
    ``num_negatives`` + 1; it is not retrieved; there is none.
    """

    num_negatives: int
    replacement: bool
    #: grade of the relevant candidates
    grade: float

    @classmethod
    def of(cls, num_negatives: int, replacement: bool, grades: Tensor) -> Draw:
        """A draw for relevant candidates with ``grades`` [candidate].

        Raises:
            ValueError: an argument has a wrong value, or grades differ.
        """
        integer("num_negatives", num_negatives, least=1, or_none=False)
        one_of("replacement", replacement, (True, False))
        if len(grades) and (grades != grades[0]).any():
            graded = ", ".join(f"{grade:g}" for grade in grades.unique().tolist()[:3])
            raise ValueError(f"Expected relevant candidates of one grade, got {graded}; make the target binary")
        return cls(int(num_negatives), replacement, grades[0].item() if len(grades) else 1)

    def check(self, positive: Positive, num_relevant: Tensor) -> None:
        """Raise ValueError for the first query that has no such draw; ``num_relevant`` is [query]."""
        least = 1 if self.replacement else self.num_negatives
        negatives = positive.negatives.masked_fill(~positive.retrieved, least)
        cases = [
            (num_relevant > 1, "one relevant candidate", "rank each by itself: ranking.each_positive(1).sampled(...)"),
            (negatives.isnan(), "lists of known length", "pass num_candidates to Ranking.from_ranks"),
            (negatives < least, f"{least} negatives or more", "lower num_negatives"),
            (positive.above.frac() != 0, "a whole rank", "pass an interval of ranks, as scores with ties have it"),
        ]
        for wrong, wanted, way_out in cases:
            if wrong.any():
                row = int(wrong.nonzero()[0])
                got = f"{num_relevant[row]:g} relevant and {positive.negatives[row]:g} other candidates"
                raise ValueError(f"Expected {wanted} in each query, got {got} in query {row}; {way_out}")

    @property
    def places(self) -> int:
        """Number of ranks in the sampled list."""
        return self.num_negatives + 1

    def expect(self, positive: Positive, values: Tensor) -> Tensor:
        """The expectation over the draw of values that depend on the outcome.

        Args:
            positive: the relevant candidate of each query.
            values: float64 [outcome, number].

        Returns:
            float64 [query, number].
        """
        rows = torch.stack([positive.above, positive.tied, positive.negatives], -1)
        parts = rows.split(max(1, BLOCK // self.places))
        mean = torch.cat([self.chances(*part.unbind(-1)) @ values[: self.places] for part in parts])
        other = torch.where(positive.exists.unsqueeze(-1), values[-2], values[-1])
        return torch.where(positive.retrieved.unsqueeze(-1), mean, other)

    def chances(self, above: Tensor, tied: Tensor, negatives: Tensor) -> Tensor:
        """The distribution of the rank among the sampled negatives: float64 [row, rank].

        Args:
            above: float64 [row]: negatives above the relevant candidate.
            tied: float64 [row]: negatives tied with it. Its rank is uniform on the interval of the sampled ties.
            negatives: float64 [row]: all negatives.
        """
        alone = chances_above(above, negatives, self.num_negatives, self.replacement)
        # Sums over the interval telescope. With N negatives, m draws and t ties after a others, the probability of
        # x above is (N + 1) / ((m + 1) (t + 1)) times P(X' > x | a + t + 1) - P(X' > x | a), with X' the number above
        # of m + 1 draws from N + 1. With replacement the integral over the share above has N and t for N + 1 and t + 1.
        added = 0 if self.replacement else 1
        after, all_of = above + tied + added, negatives + added
        scale = all_of / (self.places * (tied + added).clamp_min(1))
        several = self._beyond(after, all_of) - self._beyond(above, all_of)
        return torch.where((tied > 0).unsqueeze(-1), several.clamp_min(0) * scale.unsqueeze(-1), alone)

    def _beyond(self, above: Tensor, total: Tensor) -> Tensor:
        """P(more than x above) for one more draw and x = 0, ..., ``num_negatives``: float64 [row, x]."""
        chances = chances_above(above, total, self.places, self.replacement)
        return running_sum(chances[:, 1:].flip(-1)).flip(-1)


def chances_above(above: Tensor, total: Tensor, draws: int, replacement: bool) -> Tensor:
    """P(x of the drawn negatives are above) for x = 0, 1, ..., ``draws``: float64 [row, x].

    Of ``total`` [row] negatives ``above`` [row] are above the relevant candidate. The distribution is hypergeometric,
    or binomial with replacement. It is the softmax of sums of log(P(x + 1) / P(x)): no factorial of a large number, in
    which digits would be lost, is part of it.
    """
    x = torch.arange(draws, dtype=above.dtype, device=above.device)
    above, below = above.unsqueeze(-1), (total - above).unsqueeze(-1)
    used, left = (0, 0) if replacement else (x, draws - 1 - x)
    # Fewer than ``least`` are impossible, because there are not enough negatives below.
    least = (below <= 0) * draws if replacement else (draws - below).clamp_min(0)
    ratio = (above - used).clamp_min(0) * (draws - x) / ((below - left) * (x + 1))
    logits = pad(running_sum(torch.where(x < least, 0.0, ratio.log())), (1, 0))
    return logits.masked_fill(torch.arange(draws + 1, device=x.device) < least, float("-inf")).softmax(-1)


class Gain:
    """A function from grades to gains. Gains with equal parameters are equal, so that their sums are cached once."""

    #: whether the gain is the grade itself
    identity: bool = False
    #: whether a larger grade never has a smaller gain
    monotone: bool = False
    #: grades below it have gain 0; None = no such level
    level: float | None = None
    #: whether grade 0 may have a gain above 0
    of_zero: bool = False

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades >= 0, float like ``grade``."""
        raise NotImplementedError(f"Expected {type(self).__name__} to define __call__(grade)")


@dataclass(frozen=True)
class PlainGain(Gain):
    """A gain that is a plain function, without known properties."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, grade: Tensor) -> Tensor:
        """The gains of grades. The function gets a copy, because it may work in place."""
        return self.function(grade.clone())


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
        above = torch.searchsorted(ordered, scores.contiguous())
        best, gap = scores, torch.full_like(scores, float("inf"))
        for place in (above - 1, above):
            near = ordered.gather(-1, place.clamp(0, ordered.shape[1] - 1))
            distance = (scores - near).abs()
            closer = (distance <= self.atol + self.rtol * near.abs()) & (distance < gap) & near.isfinite()
            best, gap = torch.where(closer, near, best), torch.where(closer, distance, gap)
        return best


@dataclass(frozen=True, eq=False)
class Ranking:
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

    #: float64 [query, entry]: best rank of the entry, 1 + number of candidates with a higher score
    first: Tensor
    #: float64 [query, entry]: size of its tie group, itself included; 1 = no tie, 0 = not retrieved
    tied: Tensor
    #: [query, entry]: relevance grade in the user's dtype; negative = unjudged
    grade: Tensor
    #: bool [query, entry]: False for padding
    valid: Tensor
    #: float64 [query]: length of the ranked list
    num_candidates: Tensor
    #: int64 [kind]: counters of bad values, see ``torchrank/layouts/checks.py``
    errors: Tensor
    #: upper bound on the ranks of tied candidates, known from shapes, so that tables over ranks need not read values
    depth: int
    #: the last exact rank: larger ranks are only known to be larger; None = all ranks are exact
    reach: int | None = None
    #: [query, judged]: grades of all judged candidates, 0 = padding; None = all judged candidates are entries
    pool: Tensor | None = None
    #: whether every retrieved candidate up to ``reach`` is an entry, so that an entry's place in its row is its rank
    complete: bool = False
    #: int64 [query]: number of each query in its batch; None = consecutive
    queries: Tensor | None = None
    #: whether every candidate is an entry, retrieved or not
    all_candidates: bool = False
    #: whether irrelevant candidates were left out
    only_relevant: bool = False
    #: whether each entry is a relevant candidate of grade 1, or padding, as the label of a query is
    of_labels: bool = False
    #: [query, entry, subtopic]: grade for each subtopic; ``grade`` is the largest of them; None = no subtopics
    subtopics: Tensor | None = None
    #: bool [query, entry]: the entry is a group with judged and unjudged candidates, so that its ``grade``, the largest
    #: of the judged ones, is a lower bound; None = there is no such group
    partly_judged: Tensor | None = None
    #: float64 [query, entry]: the share of the entry in the changed documents of its query; None = not given
    changed: Tensor | None = None
    #: float64 [query, subtopic]: probability, or another weight, of each subtopic; None = all are equally likely
    intents: Tensor | None = None
    #: float64 [query, entry]: cost of each candidate, and every candidate is an entry; None = unknown
    costs: Tensor | None = None
    #: bool [query]: the query does not count in any mean; None = all queries count
    ignored: Tensor | None = None
    #: draw of negatives, over which measures take their expectation; None = all candidates are ranked
    draw: Draw | None = None
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
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
        return cls.rank(priced(layout, cost, tensor_of(preds)), Need(all_candidates=True))

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
        return cls.rank(priced(layout, cost, ids), Need(all_candidates=True))

    @classmethod
    @eager
    def from_generated(cls, beams: Array, target: Any, ids_of: Array, *, invalid: str = "hold") -> Ranking:
        """Rank the items of generated identifiers, such as the semantic ids of generative retrieval.

        An identifier of c items fills c ranks, and its items are tied over these ranks. So at the top of a list, one
        relevant item among them is 1 / c of a hit at rank 1. A repeated identifier is left out, even if it has no item,
        and the identifiers after it move up.

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
        the last id, and -inf for an id that ``second`` lacks. All ids that a list lacks are tied after the list.
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
    def from_neighbors(
        cls,
        found: Array,
        found_distance: Array,
        exact: Array,
        exact_distance: Array,
        *,
        atol: float = 0.0,
        rtol: float = 1e-5,
        counts: Array | None = None,
    ) -> Ranking:
        """Make a ranking of approximate nearest neighbours, for the recall of an index such as HNSW or IVF.

        The relevant candidates are the k exact neighbours of a query, with k the width of ``exact``: pass
        ``exact[:, :10]`` for 10. A returned point counts if it is one of them. If several points have the k-th exact
        distance, an exact answer may have any of them, so a returned point at this distance takes the place of an exact
        neighbour at this distance. A repeated id counts once. So ``tr.Recall(top_k=10)`` is the largest share that the
        first 10 returned points have in common with an exact answer. Distances matter for such ties alone.

        Other measures read the same ranking: all exact neighbours have grade 1, and so their order does not count.
        ``tr.HitRate`` asks for at least one of them, and ``tr.MRR`` for the rank of the first that was found. With
        ``exact[:, :1]``, both are about the nearest neighbour alone. Compare orders by :meth:`from_rankings`.

        Args:
            found: int [query, position], the ids that the index has returned, nearest first; -1 = padding. Also a list
                of shorter and longer lists. A repeated id keeps its rank.
            found_distance: numbers, shaped as ``found``. Wrong distances, as of an index that compresses vectors, miss
                such ties: ``tr.exact_neighbors(queries, items, k, where=found)`` returns the same ids with exact ones.
            exact: int [query, neighbour], the ids of the exact neighbours, nearest first, as by
                :func:`torchrank.exact_neighbors`; -1 = padding: a filter can leave fewer than k.
            exact_distance: numbers, shaped as ``exact``, of the same kind as ``found_distance``: both are distances, or
                both inner products.
            atol: a distance within ``atol + rtol * |radius|`` of the radius, the k-th exact distance, is tied with it;
                >= 0. Pass about 1e-6 times the product of the norms if inner products or cosines are near 0.
            rtol: the relative part of this tolerance; >= 0. The default allows for sums in float32.
            counts: int [query], the number of returned points, as in the ``counts`` of usearch, which fills short lists
                with the key 0. Set the ids beyond them to -1 before :func:`torchrank.exact_neighbors` reads ``found``.

        Bad values are NaN among the distances, and a repeated id in ``exact``.

        Raises:
            TypeError: ids are not integers.
            ValueError: shapes do not fit together, a tolerance is negative, or, on a CPU, distances are NaN or those of
                ``exact`` are in no order.

        Example:
            >>> import torch, torchrank as tr
            >>> queries, items = torch.zeros(1, 1), torch.tensor([[1.0], [2], [2], [3], [4]])
            >>> found, distance = torch.tensor([[0, 2, 2]]), torch.tensor([[1.0, 4, 4]])  # 2 is as far as 1
            >>> exact = tr.exact_neighbors(queries, items, k=3)
            >>> exact
            (tensor([[0, 1, 2]]), tensor([[1., 4., 4.]], dtype=torch.float64))
            >>> ranking = tr.Ranking.from_neighbors(found, distance, *exact)
            >>> tr.Recall(top_k=3).score(ranking)
            tensor([0.6667], dtype=torch.float64)
        """
        Tolerance.of(atol, rtol)
        lists = {"found": found, "found_distance": found_distance, "exact": exact, "exact_distance": exact_distance}
        ranks, returned, errors = neighbor_ranks(lists, counts, atol, rtol)
        ranking = cls.from_ranks(ranks, returned)
        return replace(ranking, errors=ranking.errors + errors)

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
        with in_batch(pos.device):
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

    def narrowed(self, start: int) -> Iterator[Ranking]:
        """Cut this ranking into rectangles with little padding, and number its queries.

        Queries without numbers get the numbers from ``start`` on. Padding depends on values, so on an accelerator the
        ranking stays as it is.
        """
        if not self.first.is_cpu or self.subtopics is not None or self.pool is not None:
            yield self
            return
        width, queries = self.first.shape[1], self.queries
        # The size of a query is the column after its last valid entry. Masked candidates may be invalid before it.
        from_end = self.valid.flip(-1).to(torch.uint8)
        sizes = torch.where(self.valid.any(-1), width - from_end.argmax(-1), 0) if width else self.valid.sum(-1)
        numbers = torch.arange(start, start + self.num_queries, device="cpu") if queries is None else queries
        errors = self.errors
        for rows, wide in buckets(sizes, costs.now.rectangle, costs.now.block):
            if wide == width and len(rows) == len(sizes):
                yield self
                return
            cut = {name: x[rows, :wide] for name in PER_ENTRY if (x := getattr(self, name)) is not None}
            yield replace(self.take(rows), **cut, queries=numbers[rows], errors=errors)
            errors = torch.zeros_like(errors)

    def parts(self, all_candidates: bool = False) -> list[Ranking]:
        """Rectangles of some queries each, with their numbers if they are not in order.

        Their entries are the judged candidates, or all candidates if these are asked for and the ranking has them.
        """
        return [self]

    @property
    def size(self) -> int:
        """Number of entries of all queries, padding included."""
        return self.first.numel()

    def with_names(self, names: QueryNames | None) -> Ranking:
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

    def with_intents(self, probabilities: Tensor) -> Ranking:
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

    @classmethod
    def in_rank_order(
        cls,
        first: Tensor,
        tied: Tensor,
        grade: Tensor,
        valid: Tensor,
        num_candidates: Tensor,
        errors: Tensor,
        depth: int,
        reach: int | None = None,
        queries: Tensor | None = None,
        placed: bool = False,
        **others: Any,
    ) -> Ranking:
        """Make a ranking of entries in any order: sort each row by rank.

        Entries that are not retrieved get the rank after their list. Padding follows them. ``placed``: ``first`` is
        already that rank for both. ``others`` are further fields.
        """
        # The bound from shapes is far too large for most data, which has no ties.
        if first.is_cpu and depth > 1:
            depth = depth_of(first, tied)
        if not placed:
            first = torch.where(tied > 0, first, rank_after_list(num_candidates).unsqueeze(-1))
        if first.shape[-1] > 1:
            order = torch.where(valid, first, scalar(math.inf, first.dtype, first.device)).argsort(dim=-1, stable=True)
            first, tied, grade, valid = (x.gather(-1, order) for x in (first, tied, grade, valid))
            others |= {name: reordered(x, order) for name in FURTHER if (x := others.get(name)) is not None}
        return cls(first, tied, grade, valid, num_candidates, errors, depth, reach, queries=queries, **others)

    @property
    def joined(self) -> Ranking:
        """This ranking as one rectangle."""
        return self

    def take(self, queries: Tensor | slice) -> Ranking:
        """The ranking of some queries, given by their rows in this ranking, int64 [query], or as a slice."""
        others = ("num_candidates", "pool", "queries", "intents", "ignored")
        taken = {}
        for name in (*PER_ENTRY, *others):
            if (x := getattr(self, name)) is not None:
                taken[name] = x[queries]
        return replace(self, **taken)

    def __getstate__(self) -> dict[str, Any]:
        # Some keys of the cache are functions that cannot be pickled, so a copy begins without what is cached.
        return {name: x for name, x in vars(self).items() if name not in ("in_columns", "untied")} | {"_cache": {}}

    # ---- transforms --------------------------------------------------------------------------------------------

    def under(self, ties: str) -> Ranking:
        """This ranking with its ties resolved by a policy.

        "expected" keeps the intervals. "optimistic" and "pessimistic" are orders without ties: among equal scores, the
        higher or the lower grades rank first. "realistic" gives each entry the middle of its interval.
        """
        return self if ties == "expected" or self.untied else self.resolved(ties)

    @cached
    def resolved(self, ties: str) -> Ranking:
        """This ranking without ties, by any policy but "expected".

        "optimistic" and "pessimistic" also sort the candidates that were not retrieved by grade. :meth:`under` leaves
        these candidates in any order if no retrieved candidates are tied.
        """
        if ties == "realistic":
            middle = self.first + (self.tied - 1).clamp_min(0) / 2
            return replace(self.joined, first=middle, tied=self.tied.clamp_max(1), depth=1, complete=False)
        best_first = ties == "optimistic"
        # Two stable sorts, by grade and then by rank, order each tie group by grade.
        order = self.grade.argsort(dim=-1, descending=best_first, stable=True)
        if self.costs is not None:  # of equal grades the cheapest, or the dearest, ranks first
            by_cost = self.costs.argsort(dim=-1, descending=not best_first, stable=True)
            order = self.grade.gather(-1, by_cost).argsort(dim=-1, descending=best_first, stable=True)
            order = by_cost.gather(-1, order)
        order = order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))
        present = ((name, getattr(self, name)) for name in PER_ENTRY)
        fields: dict[str, Any] = {name: reordered(x, order) for name, x in present if x is not None}
        first, tied = fields["first"], fields["tied"]
        start, stop = self.run_bounds()
        position = torch.arange(first.shape[1], device=first.device)
        # Tied candidates that are not entries are unjudged or irrelevant. They rank after the entries of their tie
        # group under "optimistic", and before these entries under "pessimistic".
        first = first + (position - start if best_first else (tied - (stop - position)).clamp_min(0))
        first = torch.where(tied > 0, first, rank_after_list(self.num_candidates).unsqueeze(-1))
        return replace(self.joined, **fields | {"first": first, "tied": tied.clamp_max(1)}, depth=1)

    @cached
    def positive(self) -> Positive:
        """The relevant candidate of each query. Each query must have at most one relevant candidate."""
        relevant = self.valid & (self.grade > 0)
        first, tied = (only(relevant, x).sum(-1) for x in (self.first, self.tied))
        retrieved, numbers = tied > 0, (first - 1, tied - 1, self.num_candidates - 1)
        return Positive(relevant.any(-1), retrieved, *(only(retrieved, x) for x in numbers))

    @cached
    def condensed(self) -> Ranking:
        """This ranking without unjudged candidates, so that judged candidates move up (Sakai, SIGIR 2007)."""
        judged = self.judged()
        listed = judged & (self.tied > 0)
        before, in_tie = self.before_and_in_tie(listed)
        # The list now contains only candidates that are judged and retrieved. Candidates that were tied stay tied.
        lengths = listed.sum(-1).to(self.first.dtype)
        first, tied = only(listed, before + 1), only(listed, in_tie)
        moved_up = self.joined.in_rank_order(
            first,
            tied,
            self.grade,
            judged,
            lengths,
            self.errors,
            self.depth,
            None,
            self.queries,
            **{name: getattr(self, name) for name in FURTHER},
        )
        return replace(moved_up, ignored=self.ignored, draw=self.draw, intents=self.intents)

    @cached
    def each_positive(self, level: float) -> Ranking:
        """Filtered ranking: each relevant entry is a separate query, ranked among the irrelevant candidates only.

        The result has a row for each entry of each query, [query * entry, 1].
        """
        before, in_tie = self.relevant_before_and_in_tie(level)
        hit = self.hit(level)
        num_hits = hit.sum(-1, keepdim=True)
        length = (self.num_candidates.unsqueeze(-1) - num_hits).expand_as(self.first)  # without the entry itself
        # An entry moves up by the number of relevant entries before it. Its tie group loses the other relevant entries.
        return replace(
            self.joined,
            first=torch.where(hit, self.first - before, rank_after_list(length)).reshape(-1, 1),
            tied=only(hit, self.tied - in_tie + 1).reshape(-1, 1),
            grade=self.grade.reshape(-1, 1),
            valid=self.relevant(level).reshape(-1, 1),
            num_candidates=(length + hit).reshape(-1),
            complete=False,
            subtopics=None,
            partly_judged=None,
            changed=None,
            intents=None,
            costs=None,
            ignored=None if self.ignored is None else self.ignored.repeat_interleave(self.first.shape[1]),
        )

    @contextmanager
    def judged_alike(self, known: dict[Any, Any]) -> Iterator[None]:
        """Context in which quantities of grades alone are those ``known`` of another system, and become known.

        Both rankings have the same queries with the same judgments.
        """
        self._cache.update(known)
        yield
        known.update({key: x for key, x in self._cache.items() if key[0] in OF_JUDGMENTS})

    # ---- quantities that measures share ------------------------------------------------------------------------

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.num_candidates)

    @property
    def num_subtopics(self) -> int:
        """Number of subtopics, including subtopics that are padding for some queries."""
        return 1 if self.subtopics is None else self.subtopics.shape[2]

    @cached
    def judged(self) -> Tensor:
        """bool [query, entry]: whether an entry is judged, retrieved or not."""
        return self.valid & (self.grade >= 0)

    def num_within(self, top_k: int | None) -> Tensor:
        """float64 [query]: number of candidates, at most ``top_k``."""
        return self.num_candidates if top_k is None else self.num_candidates.clamp_max(top_k)

    @cached
    def distinct(self) -> Ranking:
        """This ranking; only its first query if the ranks are expanded from one row, so that all queries share them."""
        same = len(self.num_candidates) > 1 and not self.first.stride(0) and not self.tied.stride(0)
        return self.take(slice(0, 1)) if same else self

    @cached_for_ranks
    def retrieved(self) -> Tensor:
        """bool [query, entry]: the entry is in the ranked list."""
        return self.tied > 0

    @cached
    def relevant(self, level: float) -> Tensor:
        """bool [query, entry]: the grade is at or above ``level``."""
        if self.of_labels and level <= 1:
            return self.valid
        return self.valid & at_least(self.grade, level)

    @cached_for_judgments
    def has_fractions(self) -> Tensor:
        """bool []: whether a grade above 0 is no whole number, also beyond ``reach``."""
        return ((self.valid & (self.grade.frac() > 0)) if self.pool is None else self.pool.frac() > 0).any()

    @cached
    def hit(self, level: float) -> Tensor:
        """bool [query, entry]: relevant and retrieved."""
        return self.relevant(level) if self.in_columns else self.relevant(level) & self.retrieved()

    @cached_for_judgments
    def num_relevant(self, level: float) -> Tensor:
        """float64 [query]: number of relevant candidates, retrieved or not, also beyond ``reach``."""
        relevant = self.relevant(level) if self.pool is None else at_least(self.pool, level)
        return relevant.sum(-1, dtype=self.first.dtype)

    @cached
    def without_relevant(self, level: float) -> Tensor:
        """bool [query]: no candidate is relevant."""
        return self.num_relevant(level) == 0

    @functools.cached_property
    def in_columns(self) -> bool:
        """Whether every entry is known to be retrieved without ties: then its rank is its column, counted from 1."""
        return self.complete and self.untied and not any(self.tied.stride())

    @functools.cached_property
    def untied(self) -> bool:
        """True if ``depth`` guarantees that no two candidates are tied."""
        return self.depth <= 1

    @cached_for_ranks
    def prob_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: probability that an entry is among the first ``top_k``."""
        inside = self.ranks_in_top_k(top_k)
        return inside if self.untied else inside / self.tied.clamp_min(1)

    @cached_for_ranks
    def ranks_in_top_k(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: number of possible ranks of an entry that are among the first ``top_k``."""
        return self.ranks_within(top_k)

    def ranks_within(self, cut: Tensor | int | None) -> Tensor:
        """:meth:`ranks_in_top_k` for a cutoff that may differ between queries: [query, 1]."""
        return self.tied if cut is None else torch.minimum((cut + 1 - self.first).clamp_min_(0), self.tied)

    def sum_up_to(self, top_k: int | None, piece: Callable[..., Tensor], *args: Any) -> Tensor:
        """float64 [query]: (expected) sum of ``piece(self, *args)`` over the entries up to a rank.

        ``piece`` must be a function of a module or of this class, because it is a key of the cache. It returns float64
        [query, entry], and 0 for entries that were not retrieved.
        """
        if top_k is None:
            return row_sum(piece(self, *args))
        if self.in_columns and self.first.is_cpu:  # all cutoffs share the running sums
            return self._running(piece, *args)[:, :top_k][:, -1]
        x = piece(self, *args)
        return row_sum(only(self.first <= top_k, x) if self.untied else x * self.prob_in_top_k(top_k), top_k)

    @cached
    def _running(self, piece: Callable[..., Tensor], *args: Any) -> Tensor:
        """float64 [query, entry]: running sums of ``piece(self, *args)``."""
        return running_sum(piece(self, *args))

    @cached
    def hit_numbers(self, level: float) -> Tensor:
        """float64 [query, entry]: 1 for a relevant and retrieved entry, else 0."""
        return self.hit(level).to(self.first.dtype)

    @cached
    def hits(self, level: float, top_k: int | None) -> Tensor:
        """float64 [query]: (expected) number of relevant candidates among the first ``top_k``."""
        return self.sum_up_to(top_k, Ranking.hit_numbers, level)

    def hits_by_rank(self, level: float, ranks: int) -> Tensor:
        """float64 [query, rank]: :meth:`hits` for ``top_k`` = 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        if self.untied and self.complete and self.first.shape[1]:  # columns are ranks
            hit = self._running(Ranking.hit_numbers, level)[:, :ranks]
            missing = ranks - hit.shape[1]
            return torch.cat([hit, hit[:, -1:].expand(-1, missing)], dim=-1) if missing else hit
        return running_sum(self.by_rank(self.relevant_before_and_in_tie(level)[1], ranks))

    def by_rank(self, in_tie: Tensor, ranks: int) -> Tensor:
        """Spread the sum of each tie group evenly over the ranks of the group: float64 [query, rank].

        ``in_tie`` [query, entry] is the sum of each entry's tie group, the same for all entries of a group.
        """
        share = ratio(in_tie, self.tied)
        # Column ``ranks`` absorbs the groups that begin beyond the last rank.
        table = share.new_zeros((len(share), ranks + 1))
        begins = (self.first.ceil() - 1).clamp_max(ranks).long()
        if self.untied:
            return table.scatter(1, begins, share)[:, :ranks]
        # With ties, the density is a running sum of steps: plus the share where a tie group begins, and minus the share
        # after the end of the group. Entries without ties are set directly, because steps leave rounding errors.
        in_group = self.tied > 1
        starts = torch.where(in_group, begins, ranks)
        ends = torch.where(in_group, self.first - 1 + self.tied, ranks).clamp_max(ranks).long()
        density = running_sum(table.scatter(1, starts, share) - table.scatter(1, ends, share))
        return density.scatter(1, torch.where(in_group, ranks, begins), share)[:, :ranks]

    @cached
    def relevant_before_and_in_tie(self, level: float) -> tuple[Tensor, Tensor]:
        """Number of retrieved relevant entries before, and in, each entry's tie group: float64 [query, entry] each."""
        return self.before_and_in_tie(self.hit(level))

    def before_and_in_tie(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of ``x`` over the entries before, and in, each entry's tie group: float64 [query, entry] each.

        ``x`` is bool or float64 [query, entry].
        """
        exact = x.dtype == torch.bool  # sums of bool are integers
        if self.first.shape[1] == 1:
            return torch.zeros_like(self.first), x.to(self.first.dtype)
        if self.untied and exact:
            inside = x.to(self.first.dtype)
            return x.cumsum(-1) - inside, inside
        so_far = pad((x.cumsum(-1) if exact else running_sum(x)).to(self.first.dtype), (1, 0))
        if self.untied:
            return so_far[:, :-1], x
        # Differences of the running sums at the ends of each tie group.
        before, up_to = so_far.expand(2, -1, -1).gather(-1, self.run_bounds()).unbind(0)
        return before, up_to - before if exact else torch.where(self.tied > 1, up_to - before, x)

    @cached
    def run_bounds(self) -> Tensor:
        """The columns where each entry's tie group starts and stops: int64 [2, query, entry]."""
        if self.complete:  # columns are ranks, so the interval of ranks gives the columns
            return rank_bounds(self.first, self.tied)
        return run_bounds(run_starts(self.first))

    @cached
    def mean_rank(self) -> Tensor:
        """float64 [query, entry]: mean of the possible ranks of an entry; the rank after the list if not retrieved."""
        missing = (self.num_candidates + 1).unsqueeze(-1)
        return torch.where(self.retrieved(), torch.add(self.first, self.tied - 1, alpha=0.5), missing)

    def mean_discount(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: (expected) ``discount(rank)``, 0 beyond ``top_k`` and if not retrieved."""
        if self.in_columns:  # all queries have the ranks 1, 2, ...
            first = self.first
            return first_discounts(discount, top_k, first.shape[1], first.dtype, first.device).expand(first.shape)
        total = self.discount_sum(discount, top_k)
        return total if self.untied else total / self.tied.clamp_min(1)

    @cached_for_ranks
    def discount_sum(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: sum of the discount over an entry's interval of ranks up to ``top_k``."""
        if self.untied:
            first, retrieved = self.first, self.tied > 0
            if self.complete:  # columns are ranks
                found = first_discounts(discount, top_k, first.shape[1], first.dtype, first.device)
                return only(retrieved, found.expand(first.shape))
            return only(retrieved if top_k is None else retrieved & (first <= top_k), discount(first.clamp_min(1)))
        bounds = self.run_bounds() if self.complete else None
        return self.discount_sum_of(self.first, self.tied, discount, top_k, bounds)

    def discount_sum_of(
        self,
        first: Tensor,
        tied: Tensor,
        discount: Callable[[Tensor], Tensor],
        top_k: int | None,
        bounds: Tensor | None = None,
    ) -> Tensor:
        """As :meth:`discount_sum`, for other intervals of ranks in the same lists: float64, shaped like ``first``."""
        # The sum over a tie group is a difference of prefix sums. An entry without ties gets its discount directly,
        # because the table of prefix sums ends at ``depth``, and the rank of the entry may be larger.
        limit = self.depth if top_k is None else min(top_k, self.depth)
        bounds = rank_bounds(first, tied) if bounds is None else bounds
        if not self.complete or limit < self.first.shape[1]:
            bounds = bounds.clamp(0, limit)
        of_group = prefix_differences(discount, limit, bounds, first.dtype)
        if self.complete:  # no rank is beyond the columns
            width = self.first.shape[1] + 1
            alone = first_discounts(discount, top_k, width, first.dtype, first.device).take(bounds[0])
        else:
            alone = discount(first.clamp_min(1))
            alone = alone if top_k is None else only(first <= top_k, alone)
        return torch.where(tied == 1, alone, of_group)

    # ---- gains ----

    @cached
    def gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: gain of each entry; 0 if unjudged or padding, and for most gains at grade 0."""
        return gains_of(self.grade, self.valid, gain, self.first.dtype)

    def discounted_gains(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query, entry]: gain of each entry times its (expected) discount, 0 if it was not retrieved."""
        return self.gains(gain) * self.mean_discount(discount, top_k)

    def discounted_gain(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: (expected) sum of discounted gains over the first ``top_k`` ranks."""
        if self.untied:
            return self.sum_up_to(top_k, Ranking.discounted_gains, gain, discount, None)
        return row_sum(self.discounted_gains(gain, discount, top_k), top_k)

    @cached
    def judged_gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, judged]: :meth:`gains` of all judged candidates, also beyond ``reach``, in any order."""
        if self.pool is None:
            return self.gains(gain)
        return gains_of(self.pool, None, gain, self.first.dtype)

    @cached
    def total_gain(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query]: sum of the gains of all judged candidates, retrieved or not, also beyond ``reach``."""
        return self.judged_gains(gain).sum(-1)

    def ideal(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: the largest sum of discounted gains over all orders of the judged candidates."""
        if self.first.is_cpu:  # all cutoffs share the running sums
            return self.ideal_by_rank(gain, discount)[:, :top_k][:, -1]
        best = self.ideal_order(gain)[:, :top_k]
        return (best * first_discounts(discount, None, best.shape[1], best.dtype, best.device)).sum(-1)

    @cached
    def ideal_by_rank(self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, rank]: :meth:`ideal` for ``top_k`` = 1, 2, ..., up to ``reach``."""
        best = self.ideal_order(gain)
        return running_sum(best * first_discounts(discount, None, best.shape[1], best.dtype, best.device))

    @cached_for_judgments
    def ideal_order(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, rank]: gains of all judged candidates in descending order, up to ``reach``.

        Negative gains are replaced by 0: in the ideal order such candidates rank after all others, and layouts differ
        in how many of the others are entries.
        """
        if self.pool is not None and not self.pool.is_floating_point() and isinstance(gain, Gain) and gain.monotone:
            best = largest(self.pool, self.pool[:, : self.reach].shape[1])  # so that few grades become gains
            return gains_of(best, None, gain, self.first.dtype).clamp_min(0)
        width = self.first.shape[1] if self.pool is None else self.pool[:, : self.reach].shape[1]
        gains = self.judged_gains(gain)
        if width > 1 and self.of_labels and self.pool is None:  # all gains are equal, so their number gives the order
            inside = columns(width, gains.device) < self.num_relevant(1).unsqueeze(-1)
            return only(inside, gains.amax(-1, keepdim=True).clamp_min(0))
        return largest(gains, width).clamp_min(0)

    @property
    @cached
    def levels(self) -> int | None:
        """The largest grade if grades are small integers on the CPU, else None."""
        judged = self.grade if self.pool is None else self.pool
        if judged.is_floating_point():
            return None
        most = greatest(judged, FEW_LEVELS + 1)
        return max(0, most) if most <= FEW_LEVELS else None

    @cached
    def finite(self) -> Tensor:
        """bool [query]: all grades are finite numbers."""
        grade = self.grade if self.pool is None else self.pool
        if not grade.is_floating_point() or not grade.shape[1]:
            return torch.ones(len(grade), dtype=torch.bool, device=grade.device)
        return grade.amax(-1).isfinite() & grade.amin(-1).isfinite()  # NaN is both

    def gains_by_rank(self, gain: Callable[[Tensor], Tensor], ranks: int) -> Tensor:
        """float64 [query, rank]: (expected) gain at the ranks 1, 2, ..., ``ranks``. Not for "realistic" ties."""
        gains = only(self.retrieved(), self.gains(gain))
        return self.by_rank(gains if self.untied else self.before_and_in_tie(gains)[1], ranks)

    # ---- subtopics ----

    def each_subtopic(self) -> Ranking:
        """This ranking once for each subtopic, graded for this subtopic alone: rows [query * subtopic].

        Grades without subtopics count as grades for a single subtopic.
        """
        return self if self.subtopics is None else self._of_subtopics(self.subtopics)

    @cached
    def _of_subtopics(self, subtopics: Tensor) -> Ranking:
        # Each query is repeated for all its subtopics, side by side.
        rows = torch.arange(self.num_queries, device=self.first.device).repeat_interleave(self.num_subtopics)
        grade = subtopics.transpose(1, 2).reshape(-1, subtopics.shape[1])
        return replace(replace(self.joined, subtopics=None, intents=None, queries=None).take(rows), grade=grade)

    @cached
    def head(self, top_k: int | None) -> Ranking:
        """This ranking with the entries that can be among the first ``top_k``, for sums over these ranks alone."""
        if top_k is None or not self.first.is_cpu or not self.first.numel():
            return self
        inside = (self.first <= top_k).any(0).nonzero()
        width = int(inside.amax()) + 1 if len(inside) else 1  # sums over tie groups need a column
        cut = {name: x[:, :width] for name in PER_ENTRY if (x := getattr(self, name)) is not None}
        return replace(self.joined, **cut)

    @cached
    def gains_by_subtopic(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, subtopic, judged]: gains of all judged candidates for each subtopic, in any order."""
        if self.subtopics is None:
            return self.judged_gains(gain).unsqueeze(1)
        return gains_of(self.subtopics.transpose(1, 2).contiguous(), self.valid.unsqueeze(1), gain, self.first.dtype)


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

    def parts(self, all_candidates: bool = False) -> list[Ranking]:
        if all_candidates and self.others is not None:
            return self.everything.parts()
        # There may be many rectangles, so measures read copies of them: the cache of a copy is freed with the copy.
        return list(self.rectangles if len(self.rectangles) == 1 else map(replace, self.rectangles))

    @property
    def size(self) -> int:
        return sum(part.first.numel() for part in self.rectangles)

    def take(self, queries: Tensor | slice) -> Ranking:
        return self.joined.take(queries)

    @property
    @cached
    def everything(self) -> Ranking:
        """The ranking with an entry for every candidate."""
        assert self.others is not None
        return self.others()

    @property
    @cached
    def joined(self) -> Ranking:
        names = ("reach", "ignored", "all_candidates", "only_relevant", "of_labels", "draw")
        shared = {name: getattr(self, name) for name in names}
        if self.others is not None:
            return replace(self.everything.joined, **shared)
        parts, width = self.rectangles, max(part.first.shape[1] for part in self.rectangles)
        lengths = torch.cat([part.num_candidates for part in parts])
        fields: dict[str, Any] = {name: _joined_field(name, parts, width) for name in PER_ENTRY}
        joined = Ranking.in_rank_order(num_candidates=lengths, errors=self.errors, depth=self.depth, **fields)
        order = batch_order([part.queries for part in parts])
        return replace(joined if order is None else joined.take(order), **shared)

    first, tied, grade, valid, subtopics, partly_judged, changed, costs = (
        property(operator.attrgetter(f"joined.{name}")) for name in PER_ENTRY
    )


def _joined_field(name: str, parts: Sequence[Ranking], width: int) -> Tensor | None:
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
    repeated = pad(pair, (1, 0))
    in_both = pad(pair, (0, 1))
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


def run_starts(x: Tensor) -> Tensor:
    """bool [query, entry], like ``x``: an element differs from the element before it in its row, or is the first."""
    first = scalar(True, torch.bool, x.device).expand(len(x), 1)
    return torch.cat([first, x[:, 1:] != x[:, :-1]], -1)[:, : x.shape[1]]


def run_bounds(begins: Tensor) -> Tensor:
    """The columns where the run of each element starts and stops: int64 [2, query, entry].

    ``begins`` is bool [query, entry], True where a run begins.
    """
    position = columns(begins.shape[-1] + 1, begins.device)
    if surely(begins):
        return position.unfold(0, 2, 1).T.unsqueeze(1).expand(2, *begins.shape)
    # Runs are numbered from 1. The table maps a run to its first column. Slot 0 absorbs the elements that do not begin
    # a run; slots without a run hold the width, so that the last run stops there.
    run, width = begins.cumsum(-1), begins.shape[-1]
    table = position.new_full((len(begins), width + 2), width)
    table.scatter_(-1, run * begins, position[:-1].expand_as(begins))
    return table.unfold(-1, 2, 1).movedim(-1, 0).gather(-1, run.expand(2, -1, -1))


@constant
def columns(number: int, device: torch.device) -> Tensor:
    """0, 1, ..., ``number`` - 1: int64 [number]."""
    return torch.arange(number, device=device)


def depth_of(first: Tensor, tied: Tensor) -> int:
    """The largest rank of a tied entry, 1 if no entry is tied. Reads values."""
    alone = tied <= 1
    return 1 if every(alone) else int((first + tied)[~alone].max()) - 1


def rank_after_list(num_candidates: Tensor) -> Tensor:
    """The rank after a list; larger than every rank if the length of the list is unknown (NaN)."""
    return num_candidates.nan_to_num(nan=2.0**60) + 1


def reordered(x: Tensor, order: Tensor) -> Tensor:
    """Reorder a field [query, entry] or [query, entry, subtopic] by an order of the entries, int64 [query, entry]."""
    return x.gather(1, order if x.dim() == 2 else order.unsqueeze(-1).expand(-1, -1, x.shape[2]))


def at_least(grade: Tensor, level: float) -> Tensor:
    """bool, shaped like ``grade``: the grade is at or above ``level``."""
    if not grade.is_floating_point() and level > torch.iinfo(grade.dtype).max:
        return torch.zeros_like(grade, dtype=torch.bool)  # in the dtype of ``grade``, the level would wrap around
    return grade >= level


def gains_of(grade: Tensor, valid: Tensor | None, gain: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """Gains of grades in a floating dtype, 0 where ``valid`` is False; for most gains 0 at grade 0, and below it."""
    gain = gain if isinstance(gain, Gain) else PlainGain(gain)
    gaining = grade >= 0 if gain.of_zero else grade > 0
    gaining = gaining if valid is None else gaining & valid
    wide = only(gaining, grade).to(dtype)
    if gain.level is not None:
        # The level is compared in the grade's dtype: 0.1 in float16 is below 0.1 in float64. A grade at or above it is
        # lifted to the level, so that the gain function decides in the same way.
        wide = only(gaining & at_least(grade, gain.level), wide.clamp_min(gain.level))
    return wide if gain.identity else only(gaining, gain(wide))


def only(where: Tensor, x: Tensor) -> Tensor:
    """``x`` where a condition is True, else 0."""
    if not x.is_cpu or x.dtype not in (torch.float64, torch.int64):
        return torch.where(where, x, scalar(0, x.dtype, x.device))
    # torch.where takes a branch for each element, which a processor guesses wrong half of the time. So turn the
    # condition into 64 ones or zeros for each element, and take the bits of x where they are ones.
    ones = where.view(torch.int8).neg().to(torch.int64)
    return (ones & x.view(torch.int64)).view(x.dtype)


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """numerator / denominator, elementwise; 0 where the denominator is 0."""
    return (numerator / denominator).masked_fill_(denominator == 0, 0)


def per(total: Tensor, number: Tensor) -> Tensor:
    """total / number, elementwise, for numbers of things: 0 where there are none, which have no total either."""
    return total / number.clamp_min(1)


def row_sum(x: Tensor, top_k: int | None = None) -> Tensor:
    """Sums over the last dimension, a view if it has one element; as running sums if there is a cutoff.

    ``x`` is 0 beyond the cutoff. So a sum has the same digits whether it is read from running sums or not.
    """
    if x.shape[-1] == 1:
        return x.squeeze(-1)
    return x.sum(-1) if top_k is None or not x.is_cpu else running_sum(x)[..., -1]


def marked_rows(where: Tensor, steps: int = 0) -> Tensor:
    """Numbers of the rows with a True, int64; all rows if reading the values would wait for a device.

    ``steps`` is as in :func:`torchrank.hardware.devices.worth_reading`.
    """
    if not worth_reading(where, steps):
        return torch.arange(len(where), device=where.device)
    return where.any(-1).nonzero().squeeze(-1)


# Prefix sums up to this rank are accurate enough. Longer ones come with the digits that rounding has taken from them.
NEAR = 2**8


def rank_bounds(first: Tensor, tied: Tensor) -> Tensor:
    """The rank before each interval of ranks, and its last rank: int64 [2, ...]."""
    before = first - 1
    return torch.stack([before, before + tied]).long()


def discount_table(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """:func:`constant` for a table of a discount. A user's function may change, so its tables are made again."""
    return constant(make, keep=lambda discount, *_: _is_fixed(discount))


def _is_fixed(x: object) -> bool:
    """Whether an object is a number, or is frozen and made of numbers."""
    parameters = getattr(type(x), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return isinstance(x, int | float)
    return all(map(_is_fixed, vars(x).values()))


@discount_table
def prefix_sums(discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Sums of a discount over the ranks 1 ... r, for r = 0 ... ``limit``: float [limit + 1]."""
    ranks = torch.arange(1, limit + 1, dtype=dtype, device=device)
    return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))


def prefix_differences(discount: Callable[[Tensor], Tensor], limit: int, ends: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums of a discount over intervals of ranks, accurate also for a short interval far down.

    Args:
        discount: the discount.
        limit: the largest rank.
        ends: the rank before each interval, and its last rank: int64 [2, ...].
        dtype: the floating dtype of the sums.
    """
    before, up_to = prefix_sums(discount, limit, dtype, ends.device).take(ends)
    if limit <= NEAR:
        return up_to - before
    lost_before, lost_up_to = lost_digits(discount, limit, dtype, ends.device).take(ends)
    return (up_to - before) + (lost_up_to - lost_before)


@discount_table
def lost_digits(discount: Callable[[Tensor], Tensor], limit: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Exact sums minus :func:`prefix_sums`: the digits that rounding has taken from them: float [limit + 1]."""
    table = prefix_sums(discount, limit, dtype, device)
    lost = torch.zeros_like(table)
    for start in range(0, limit, BLOCK):
        stop = min(start + BLOCK, limit)
        values = discount(torch.arange(start + 1, stop + 1, dtype=dtype, device=device))
        low, high = table[start:stop], table[start + 1 : stop + 1]
        # ``step`` and its rounding error ``off`` make up the difference of two prefix sums (Knuth's TwoSum).
        step = high - low
        back = step - high
        off = (high - (step - back)) - (low + back)
        lost[start + 1 : stop + 1] = lost[start] + running_sum(values - step - off)
    if limit + 1 <= NEAR:  # among the first ranks, an interval has the same digits in any table
        return torch.zeros_like(lost)
    return (lost - lost[NEAR : NEAR + 1]).index_fill_(-1, torch.arange(NEAR, device=device), 0)


@discount_table
def first_discounts(
    discount: Callable[[Tensor], Tensor], top_k: int | None, number: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The values of a discount at 1 ... ``number``, 0 beyond ``top_k``: float [number]."""
    table = discount(torch.arange(1, number + 1, dtype=dtype, device=device)).clone()  # it may return its argument
    table[top_k if top_k is not None else number :] = 0
    return table


def sum_over_ranks(values: Callable[[Tensor], Tensor], last: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The sum of a function over the ranks 1, ..., ``last``, float [], with some ranks in memory at a time."""
    total = torch.zeros((), dtype=dtype, device=device)
    for start in range(1, last + 1, BLOCK):
        total = total + values(torch.arange(start, min(start + BLOCK, last + 1), dtype=dtype, device=device)).sum()
    return total
