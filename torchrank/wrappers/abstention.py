"""Abstention: how well a confidence tells the queries with good values from those with bad ones."""

from __future__ import annotations

import math
from typing import Any, Literal, Unpack, get_args

import numpy
import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum, widest_float
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.checks import check_tensor, tensor_of
from torchrank.names.arguments import one_of
from torchrank.names.types import Array, Target
from torchrank.state.scoring import Values
from torchrank.state.waiting import bulk
from torchrank.wrappers.suite_metric import Scores, Suite, SuiteMetric

#: the confidence in a list, from its scores
Confidence = Literal["max", "std", "diff1"]

#: MTEB's rates of abstention
RATES = torch.from_numpy(numpy.linspace(0, 1, 11)[:-1])

#: number of bins: of confidences, one for each number of 16 bits; and of values, of equal width
BINS, VALUE_BINS = 2**16, 2**12


class Abstention(SuiteMetric):
    r"""A suite, and how much better it becomes if the queries of least confidence get no answer.

    ``compute`` returns, for each key of the suite, the mean as ``key``, and as

    - ``key/nauc`` the normalised area under the abstention curve, :math:`\frac{A - \bar{A}}{A^* - \bar{A}}`. A is the
      area under the means of the remaining queries over the rates of abstention 0, 0.1, ..., 0.9, by trapezoids. A*
      abstains from the queries of the smallest values, and the third area is that of a constant mean. 1 is the best
      confidence, 0 is a useless one, and NaN means that all queries have the same value.
    - ``key/aurc`` the area under the risk-coverage curve: the mean over n of the mean risk of the n most confident
      queries. The risk is the largest possible value minus the value. 0 is perfect.

    Queries of the same confidence are in random order: the curves are the exact means over all orders. Queries that a
    metric skips do not count for it. Weights have no scale: a query of twice the mean weight counts as two queries.

    The state has constant size, because queries are counted in bins: about 1.1 MB for each metric. Confidences are
    compared in half precision, so all above 65,504 are tied; divide larger ones. For A* only, values are sorted in
    4,096 bins. Their sums are exact.

    Source:
        nAUC: Gisserot-Boukhlef et al., Towards trustworthy reranking: a simple yet effective abstention mechanism, TMLR
        2024; MTEB, ``nAUC``. AURC: Geifman, Uziel and El-Yaniv, Bias-reduced uncertainty estimation for deep neural
        classifiers, ICLR 2019.

    Args:
        suite: a metric, names of metrics, or a collection, of measures with finite bounds for which higher is better.
            Its measures are copied; their states stay empty.
        confidence: the confidence if ``update`` is given none: "max", the largest score of the list; "std", the
            standard deviation of its scores; "diff1", the largest minus the second score. Of retrieved candidates only.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: an unknown confidence, or a measure without a mean, without finite bounds or with a lower value as
            the better one.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Abstention("mrr")
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4], [0.3, 0.1]])
        >>> metric.update(scores, torch.tensor([0, 0, 0, 1]))  # the two answers of least confidence are wrong
        >>> {key: round(value.item(), 4) for key, value in metric.compute().items()}
        {'mrr': 0.75, 'mrr/nauc': 1.0, 'mrr/aurc': 0.1042}
    """

    def __init__(self, suite: Suite, confidence: Confidence = "max", **kwargs: Any) -> None:
        one_of("confidence", confidence, get_args(Confidence))
        super().__init__(suite, f"abstention({confidence}) ", **kwargs)
        self.confidence = confidence
        for key, metric in self.metrics.items():
            if not metric.higher_is_better or not all(map(math.isfinite, metric.value_range)):
                raise ValueError(
                    f"Expected bounded measures, higher is better, in Abstention, got {key!r}; leave it out"
                )

    @property
    def num_counters(self) -> int:
        # queries without a confidence; then for each metric its queries, and the weight and the value in each bin
        return 1 + len(self.metrics) * (1 + 2 * (BINS + VALUE_BINS))

    @bulk
    @with_options
    def update(
        self,
        preds: Scores,
        target: Target | None = None,
        *,
        confidence: Array | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``confidence``.

        ``confidence`` is float [query]; None = by the constructor's rule from scores [query, candidate]. Other layouts,
        and scores with ``exclude`` or ``groups``, need it.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or a confidence is missing or has another
                shape. NaN is counted and raises in :meth:`compute`.
        """
        batch = Batch(preds, target, **options)
        by_query = self._from_scores(batch) if confidence is None else check_tensor(tensor_of(confidence), "confidence")
        values = self._values(batch)
        self.add(self._bins(by_query, values), self._sums_of(values))
        self.notice_cut(batch.indexes)

    def _from_scores(self, batch: Batch) -> Tensor:
        """The confidence in each list, float [query]."""
        scores, parts = batch.preds, []
        plain = isinstance(scores, Tensor) and scores.dim() == 2 and scores.is_floating_point()
        if not plain or batch.exclude is not None or batch.groups is not None:
            without = "scores [query, candidate] without exclude and groups"
            raise ValueError(f"Expected confidence [query] with all but {without}, got none; pass confidence=")
        rows = max(1, BLOCK // max(1, scores.shape[1]))
        for n, part in enumerate(scores.detach().split(rows)):  # so that no matrix is copied
            if batch.mask is not None:
                part = part.masked_fill(~batch.mask[n * rows :][: len(part)], -math.inf)
            if self.confidence == "std":
                listed = part.to(widest_float(part.device)).masked_fill(part == -math.inf, math.nan)
                centred = listed - listed.nanmean(1, keepdim=True)
                parts.append(centred.square().nanmean(1).sqrt().nan_to_num())
                continue
            wide = torch.nn.functional.pad(part, (0, 2), value=-math.inf) if part.shape[1] < 2 else part
            best, second = wide.topk(2).values.unbind(1)
            parts.append(best if self.confidence == "max" else torch.where(second == -math.inf, 0, best - second))
        return torch.cat(parts)

    def _bins(self, confidence: Tensor, values: Values) -> Tensor:
        """The counters of a batch: queries without a confidence, and the bins of each metric."""
        if confidence.shape != (values.num_queries,):
            raise ValueError(f"Expected confidence of shape [{values.num_queries}], got {list(confidence.shape)}")
        confidence = confidence.detach().to(values.values.device)
        # Numbers of 16 bits in ascending order; those of negative ones descend.
        bits = confidence.to(torch.float16).view(torch.int16).long()
        place = torch.where(bits < 0, -bits - BINS // 2, bits) + BINS // 2
        bins = [confidence.isnan().sum().reshape(1)]
        for metric, value, weight in zip(self.metrics.values(), values.values, values.final_weights):
            low, high = metric.value_range
            share = ((value - low) / (high - low)).nan_to_num().clamp(0, 1)
            wv = torch.where(weight > 0, weight * value, 0.0)
            bins.append((weight > 0).sum().reshape(1))
            for at, size in ((place, BINS), ((share * (VALUE_BINS - 1)).round().long(), VALUE_BINS)):
                bins += [torch.zeros(size, dtype=x.dtype, device=x.device).scatter_add_(0, at, x) for x in (weight, wv)]
        return torch.cat(bins)

    def check(self, sums: Tensor) -> None:
        if missing := int(sums[0]):
            raise ValueError(f"Expected confidence to be numbers, got NaN for {missing} queries; give each query one")

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        results: dict[str, Tensor] = {}
        bins = sums[1 : self.num_counters].view(len(self.metrics), -1)
        for (key, value), row in zip(super().results(sums).items(), bins):
            row = row[1:] * (row[0] / row[1 : 1 + BINS].sum())  # weights with a mean of 1
            weight, total, value_weight, value_total = row.split((BINS, BINS, VALUE_BINS, VALUE_BINS))
            area, best = (_area_of_abstention(*counts) for counts in ((weight, total), (value_weight, value_total)))
            flat = total.sum() / weight.sum() * float(RATES[-1])
            spread = torch.where(best - flat > 1e-12 * flat.abs(), best - flat, math.nan)
            risk = self.metrics[key].value_range[1] * weight - total
            results |= {key: value, f"{key}/nauc": (area - flat) / spread, f"{key}/aurc": _area_of_risk(weight, risk)}
        return results


def _area_of_abstention(weight: Tensor, total: Tensor) -> Tensor:
    """Area under the means of what remains, over the rates of abstention; bins in ascending order of confidence."""
    rates = RATES.to(weight)
    queries, values = running_sum(weight), running_sum(total)
    out = torch.minimum((rates * queries[-1]).round(), queries[-1] - 1)
    last = torch.searchsorted(queries, out, right=True).clamp_max(len(weight) - 1)  # the bin that is cut
    left = values[-1] - values[last] + (queries[last] - out) * total[last] / weight[last]
    return torch.trapezoid(left / (queries[-1] - out), rates)


def _area_of_risk(weight: Tensor, risk: Tensor) -> Tensor:
    """Mean over n of the mean risk of the n most confident queries; bins in ascending order of confidence."""
    there = weight > 0
    weight, risk = weight[there].flip(0), risk[there].flip(0)
    before, mean = running_sum(weight) - weight, risk / weight
    # With b queries of risk s before a bin of mean m, n of them have the mean (s + (n - b) m) / n.
    harmonic = torch.special.digamma(before + weight + 1) - torch.special.digamma(before + 1)
    return ((running_sum(risk) - risk - before * mean) * harmonic + risk).sum() / weight.sum()
