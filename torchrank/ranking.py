"""A :class:`Ranking` is where the judged candidates stand: all that a measure needs to know."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from torchrank.engine import Places, place
from torchrank.engine.places import behind, in_rank_order, real, runs
from torchrank.layouts import arrange, embedded
from torchrank.lists import Lists
from torchrank.problems import Problem, count, explain

P = ParamSpec("P")
T = TypeVar("T")


def shared(piece: Callable[Concatenate[Ranking, P], T]) -> Callable[Concatenate[Ranking, P], T]:
    """Compute a piece of a ranking once, however many measures ask for it."""

    @functools.wraps(piece)
    def once(self: Ranking, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (piece.__name__, args, tuple(kwargs.items()))
        if key not in self._pieces:
            self._pieces[key] = piece(self, *args, **kwargs)
        return self._pieces[key]

    return once


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where the whole is 0."""
    return torch.where(whole == 0, 0.0, part / torch.where(whole == 0, 1.0, whole))


def running_sum(x: Tensor) -> Tensor:
    """Cumulative sum of floats over the last dimension, in an order that does not change from run to run."""
    if x.device.type == "cpu":
        return x.cumsum(-1)
    step = 1  # torch.cumsum is not deterministic on accelerators
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x


@dataclass(frozen=True, eq=False)
class Ranking(Places):
    """Where the judged candidates of each query stand, one row of entries per query.

    Every layout arrives here, and every measure starts from here. Ties make a rank an interval: an entry's rank is
    uniform on ``[first, first + tied - 1]``. A judged candidate that was not retrieved is an entry too, so that
    recall and the ideal order know of it. A ``Ranking`` is never changed; what it computes is kept and shared.

    Fields: ``first``, ``tied`` float64 [query, entry]; ``grade`` [query, entry]; ``valid`` bool [query, entry];
    ``num_candidates`` float64 [query]; ``errors`` int64 [kind]; ``depth``, a bound on the ranks of what is tied.

    Example:
        >>> import torch, torchrank as tr
        >>> ranking = tr.Ranking.from_label(torch.tensor([[0.1, 0.9, 0.9, 0.3]]), torch.tensor([2]))
        >>> ranking.first, ranking.tied, ranking.num_candidates
        (tensor([[1.]], dtype=torch.float64), tensor([[2.]], dtype=torch.float64), tensor([4.], dtype=torch.float64))
        >>> tr.MRR().score(ranking)  # first or second place, as likely: (1 + 1/2) / 2
        tensor([0.7500], dtype=torch.float64)
    """

    _pieces: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    # ---- from what the user has --------------------------------------------------------------------------------

    @classmethod
    def from_scores(
        cls,
        preds: Tensor,
        target: Any,
        *,
        mask: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
    ) -> Ranking:
        """Rank scores.

        Args:
            preds: floating [query, candidate].
            target: grades [query, candidate]; or the column of the positive, int [query], negative = none; or a
                (query, item) or (query, item, grade) tuple of 1-D tensors; or a list of one id tensor per query.
            mask: bool [query, candidate], True for real candidates.
            exclude: (query, item) tuple of 1-D tensors: pairs that are no candidates, unless they are relevant.
            tie_break: [query, candidate] or [candidate], the larger ranks first among equal scores.

        Raises:
            TypeError, ValueError: the arguments do not fit together; or values are bad (NaN, out of range, twice).
        """
        return cls._checked(arrange(preds, target, mask=mask, exclude=exclude, tie_break=tie_break))

    @classmethod
    def from_label(
        cls,
        preds: Tensor,
        label: Tensor,
        *,
        mask: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
    ) -> Ranking:
        """Rank scores [query, item] over a catalogue with one right answer: ``label`` int [query], negative = none."""
        if label.dim() != 1:
            raise ValueError(f"Expected label of shape [{len(preds)}], got {list(label.shape)}")
        return cls._checked(arrange(preds, label, mask=mask, exclude=exclude, tie_break=tie_break))

    @classmethod
    def from_flat(
        cls,
        preds: Tensor,
        target: Tensor,
        indexes: Tensor,
        *,
        mask: Tensor | None = None,
        tie_break: Tensor | None = None,
    ) -> Ranking:
        """Rank flat rows, all [row]: ``indexes`` names the query of each. Queries come in ascending order of index."""
        return cls._checked(arrange(preds, target, indexes=indexes, mask=mask, tie_break=tie_break))

    @classmethod
    def from_ids(
        cls,
        ids: Tensor,
        relevant: Any,
        *,
        mask: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
    ) -> Ranking:
        """Rankings given as ids, best first: int [query, position], negative = padding.

        ``relevant``: ids [query]; [query, entry] padded with negatives; a list of one id tensor per query; or a
        (query, id) or (query, id, grade) tuple of 1-D tensors.
        """
        if ids.is_floating_point():
            raise TypeError(
                f"Expected ids to be integer, best first, got {ids.dtype}; scores go to Ranking.from_scores"
            )
        return cls._checked(arrange(ids, relevant, mask=mask, exclude=exclude))

    @classmethod
    def from_ranks(cls, ranks: Tensor, num_candidates: Tensor | int | None = None) -> Ranking:
        """Ranks known from elsewhere.

        Args:
            ranks: [query] or [query, entry], the rank of each relevant candidate: 1 = best, infinite = not retrieved,
                0 or negative = padding. Fractional ranks stand for themselves. Within a query they are ranks in one
                list, so no two are equal; ranks that were filtered already are lists of their own: [query], one each.
            num_candidates: length of the lists, one for all or [query]. Without it, what needs it is NaN (mean rank
                of what was not retrieved, fall-out, precision without ``top_k``).

        Raises:
            ValueError: ranks have another shape, or lie between 0 and 1 or beyond ``num_candidates``, or are equal in
                one query.
        """
        if ranks.dim() not in (1, 2):
            raise ValueError(f"Expected ranks of shape [query] or [query, entry], got {list(ranks.shape)}")
        first = ranks.detach().to(real(ranks.device))
        first = first.unsqueeze(-1) if first.dim() == 1 else first
        first = first if first.shape[1] else first.new_zeros((len(first), 1))
        length = float("nan") if num_candidates is None else num_candidates
        length = torch.as_tensor(length, dtype=first.dtype, device=first.device).clone().expand(len(first))
        valid = ~(first <= 0)
        finite = first.isfinite()
        # Without ties there is no table over ranks, so they may be as large as they like.
        bad = (valid & (first < 1)) | (finite & (first > length.unsqueeze(-1))) | first.isnan()
        ordered = first.sort(dim=-1).values
        again = (ordered[:, 1:] == ordered[:, :-1]) & ordered[:, 1:].isfinite() & (ordered[:, 1:] > 0)
        places = in_rank_order(
            torch.where(finite, first, 1),
            (finite & valid).to(first.dtype),
            valid.to(torch.int8),
            valid,
            length,
            count(Problem.BAD_RANKS, bad) + count(Problem.BAD_RANKS, again),
            depth=1,
        )
        return cls._of(places)._raise()

    @classmethod
    def from_negatives(cls, pos: Tensor, neg: Tensor) -> Ranking:
        """Positives, [query] or [query, positive] scores, against sampled negatives, [query, negative] scores."""
        pos = pos.unsqueeze(-1) if pos.dim() == 1 else pos
        if pos.dim() != 2 or neg.dim() != 2 or len(pos) != len(neg):
            raise ValueError(
                "Expected pos [query] or [query, positive] and neg [query, negative] of as many queries, got shapes"
                f" {list(pos.shape)} and {list(neg.shape)}"
            )
        dtype = torch.promote_types(pos.dtype, neg.dtype)
        dtype = dtype if dtype.is_floating_point else torch.float64
        scores = torch.cat([pos.to(dtype), neg.to(dtype)], dim=-1)
        columns = torch.arange(pos.shape[1], device=pos.device).expand(len(pos), -1)
        return cls._checked(arrange(scores, list(columns)))

    @classmethod
    def from_embeddings(
        cls,
        queries: Tensor,
        items: Tensor,
        relevant: Any,
        *,
        exclude: tuple[Tensor, Tensor] | None = None,
        similarity: str = "dot",
    ) -> Ranking:
        """Rank a catalogue by the similarity of embeddings. The [query, item] matrix of scores is never whole.

        Args:
            queries: floating [query, dimension].
            items: floating [item, dimension].
            relevant: items int [query], [query, entry] padded with negatives, a list of one id tensor per query, or a
                (query, item) or (query, item, grade) tuple.
            exclude: (query, item) tuple of 1-D tensors: pairs that are no candidates, unless they are relevant.
            similarity: "dot" or "cosine".
        """
        return cls._checked(embedded(queries, items, relevant, exclude, similarity, validate=True))

    @classmethod
    def from_run(cls, qrels: Mapping[str, Mapping[str, float]], run: Mapping[str, Mapping[str, float]]) -> Ranking:
        """Judgments {query: {document: grade}} and a run {query: {document: score}}, queries in the order of ``qrels``.

        Equal scores are ordered by document id, the larger first, as trec_eval does. A judged query that the run lacks
        has retrieved nothing; queries without judgments are left out.
        """
        rows: list[tuple[int, float, float]] = []
        for number, (query, judged) in enumerate(qrels.items()):
            scored = run.get(query, {})
            documents = sorted({*judged, *scored})  # a later row has the larger id
            rows += [(number, scored.get(d, float("-inf")), judged.get(d, 0)) for d in documents]
            rows += [(number, float("-inf"), 0.0)] * (not documents)
        query_, score, grade = (list(column) for column in zip(*rows)) if rows else ([], [], [])
        scores = torch.tensor(score, dtype=torch.float64)
        position = torch.arange(len(scores))
        grades_ = torch.tensor(grade, dtype=torch.float64)
        return cls._checked(
            arrange(scores, grades_, indexes=torch.tensor(query_, dtype=torch.int64), tie_break=position)
        )

    @classmethod
    def blocks(cls, lists: Lists) -> Iterator[Ranking]:
        """Rank a batch block by block, so that temporaries stay small however large the batch is."""
        for block in lists.blocks():
            yield cls._of(place(block))

    @classmethod
    def _checked(cls, lists: Lists) -> Ranking:
        return cls.join(cls.blocks(lists))._raise()

    @classmethod
    def join(cls, rankings: Iterable[Ranking]) -> Ranking:
        """One ranking of the queries of all."""
        parts = list(rankings)
        if len(parts) == 1:
            return parts[0]
        width = max(part.first.shape[1] for part in parts)
        first, tied, grade, valid = [
            torch.cat([torch.nn.functional.pad(getattr(p, name), (0, width - p.first.shape[1])) for p in parts])
            for name in ("first", "tied", "grade", "valid")
        ]
        lengths = torch.cat([part.num_candidates for part in parts])
        errors = torch.stack([part.errors for part in parts]).sum(0)
        return cls._of(in_rank_order(first, tied, grade, valid, lengths, errors, max(part.depth for part in parts)))

    @classmethod
    def _of(cls, places: Places) -> Ranking:
        return cls(**{f.name: getattr(places, f.name) for f in fields(Places)})

    def _raise(self) -> Ranking:
        if found := explain(self.errors):
            raise ValueError(found)
        return self

    # ---- transforms --------------------------------------------------------------------------------------------

    def under(self, ties: str) -> Ranking:
        """This ranking with its ties settled by a policy; "expected" leaves the intervals as they are.

        "optimistic" and "pessimistic" are real orders, which put higher or lower grades first among equal scores.
        "realistic" puts each entry in the middle of its interval.
        """
        return self if ties == "expected" else self._settled(ties)

    @shared
    def _settled(self, ties: str) -> Ranking:
        if ties == "realistic":
            return replace(self, first=self.first + (self.tied - 1).clamp_min(0) / 2, tied=self.tied.clamp_max(1))
        best_first = ties == "optimistic"
        order = self.grade.argsort(dim=-1, descending=best_first, stable=True)
        order = order.gather(-1, self.first.gather(-1, order).argsort(dim=-1, stable=True))
        first, tied, grade, valid = (x.gather(-1, order) for x in (self.first, self.tied, self.grade, self.valid))
        start, stop = self._runs()
        position = torch.arange(first.shape[1], device=first.device)
        first = first + (position - start if best_first else (tied - (stop - position)).clamp_min(0))
        first = torch.where(tied > 0, first, behind(self.num_candidates).unsqueeze(-1))
        return replace(self, first=first, tied=tied.clamp_max(1), grade=grade, valid=valid)

    @shared
    def each_positive(self, level: float) -> Ranking:
        """Filtered ranking: every relevant entry as a query of its own, among the non-relevant candidates only.

        Rows [query * entry], one entry each.
        """
        before, beside = self.relevant_around(level)
        found = self.found(level)
        others = found.sum(-1, keepdim=True)
        length = (self.num_candidates.unsqueeze(-1) - others).expand_as(self.first)
        return replace(
            self,
            first=torch.where(found, self.first - before, behind(length)).reshape(-1, 1),
            tied=torch.where(found, self.tied - beside + 1, 0).reshape(-1, 1),
            grade=self.grade.reshape(-1, 1),
            valid=self.relevant(level).reshape(-1, 1),
            num_candidates=length.reshape(-1),
        )

    # ---- pieces that measures share ----------------------------------------------------------------------------

    @property
    def num_queries(self) -> int:
        """Number of queries."""
        return len(self.num_candidates)

    @shared
    def relevant(self, level: float) -> Tensor:
        """bool [query, entry]: graded at or above ``level``."""
        if not self.grade.is_floating_point() and level > torch.iinfo(self.grade.dtype).max:
            return torch.zeros_like(self.valid)  # where the comparison would wrap around
        return self.valid & (self.grade >= level)

    @shared
    def found(self, level: float) -> Tensor:
        """bool [query, entry]: relevant and retrieved."""
        return self.relevant(level) & (self.tied > 0)

    @shared
    def num_relevant(self, level: float) -> Tensor:
        """float64 [query]: relevant candidates, retrieved or not."""
        return self.relevant(level).sum(-1).to(self.first.dtype)

    @shared
    def share(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: probability that an entry is among the first ``top_k``."""
        return self.places(top_k) / self.tied.clamp_min(1)

    @shared
    def places(self, top_k: int | None) -> Tensor:
        """float64 [query, entry]: how many of the ranks that an entry can have are among the first ``top_k``."""
        return self.places_within(top_k)

    def places_within(self, cut: Tensor | int | None) -> Tensor:
        """:meth:`places` for a cut that may differ between queries: [query, 1]."""
        return self.tied if cut is None else torch.minimum((cut - self.first + 1).floor().clamp_min(0), self.tied)

    @shared
    def hits(self, level: float, top_k: int | None) -> Tensor:
        """float64 [query]: (expected) number of relevant candidates among the first ``top_k``."""
        return torch.where(self.found(level), self.share(top_k), 0.0).sum(-1)

    @shared
    def relevant_around(self, level: float) -> tuple[Tensor, Tensor]:
        """Retrieved relevant entries strictly before, and in, each entry's block of ties: float64 [query, entry]."""
        if self.first.shape[1] == 1:
            return torch.zeros_like(self.first), self.found(level).to(self.first.dtype)
        so_far = torch.nn.functional.pad(self.found(level).cumsum(-1), (1, 0)).to(self.first.dtype)
        start, stop = self._runs()
        before = so_far.gather(-1, start)
        return before, so_far.gather(-1, stop) - before

    @shared
    def _runs(self) -> tuple[Tensor, Tensor]:
        """Where each entry's block starts and stops in its row: int64 [query, entry]. Blocks are adjacent entries."""
        fresh = torch.ones_like(self.valid)
        fresh[:, 1:] = self.first[:, 1:] != self.first[:, :-1]
        return runs(fresh)

    @shared
    def discounted(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: (expected) ``discount(rank)``, 0 beyond ``top_k`` and where not retrieved."""
        return self.summed(discount, top_k) / self.tied.clamp_min(1)

    @shared
    def summed(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """float64 [query, entry]: sum of the discount over an entry's interval of ranks, cut at ``top_k``."""
        inside = self.tied == 1 if top_k is None else (self.tied == 1) & (self.first <= top_k)
        alone = torch.where(inside, discount(self.first.clamp_min(1)), 0.0)
        if self.depth <= 1:
            return alone
        table = self._table(discount, top_k)
        last = len(table) - 1
        above = (self.first - 1).clamp(0, last)
        several = table[(above + self.tied).clamp_max(last).long()] - table[above.long()]
        return torch.where(self.tied > 1, several, alone)

    @shared
    def _table(self, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
        """Prefix sums of a discount over the ranks 0, 1, ..., as far as they can matter."""
        limit = self.depth if top_k is None else min(top_k, self.depth)
        ranks = torch.arange(1, limit + 1, dtype=self.first.dtype, device=self.first.device)
        return torch.nn.functional.pad(running_sum(discount(ranks)), (1, 0))

    @shared
    def gains(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, entry]: gain of each entry; 0 for grades of 0 and below, unjudged and padding."""
        judged = self.valid & (self.grade > 0)
        grade = torch.where(judged, self.grade, torch.zeros_like(self.grade)).to(self.first.dtype)
        return torch.where(judged, gain(grade), 0.0)

    @shared
    def ideal(
        self, gain: Callable[[Tensor], Tensor], discount: Callable[[Tensor], Tensor], top_k: int | None
    ) -> Tensor:
        """float64 [query]: the largest sum of discounted gains that an order of all judged candidates can have."""
        best = self.gains(gain).sort(dim=-1, descending=True).values[:, :top_k]
        ranks = torch.arange(1, best.shape[1] + 1, dtype=best.dtype, device=best.device)
        return (best * discount(ranks)).sum(-1)
