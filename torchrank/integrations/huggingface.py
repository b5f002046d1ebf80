"""Hugging Face's Trainer: ``Trainer(compute_metrics=...)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch

from torchrank.integrations.workers import AnySuite, alone, floats
from torchrank.layouts.canonical import IGNORED

#: the value with which Trainer pads shorter rows, of predictions and of labels
PADDING = IGNORED


class Prediction(Protocol):
    """Trainer's ``EvalPrediction``: NumPy arrays, or tensors with ``batch_eval_metrics=True``.

    Both may be tuples of arrays, and with ``eval_do_concat_batches=False`` lists of batches.
    """

    predictions: Any
    label_ids: Any


#: the arguments of ``update``: a tuple, or a dict of keywords
Arguments = tuple[Any, ...] | Mapping[str, Any]


def compute_metrics(suite: AnySuite, unpack: Callable[[Any], Arguments] | None = None) -> ComputeMetrics:
    """A function for ``Trainer(compute_metrics=...)``, which returns the values of a suite.

    It works with and without ``TrainingArguments(batch_eval_metrics=True)``. With it each batch is added when it is
    there, so that Trainer keeps no scores; without it Trainer keeps the scores of all queries until the end.

    Trainer gathers the predictions of all processes and cuts the repeats of the last batch. So every process has all
    queries, nothing is synchronised again, and each query counts once.

    Args:
        suite: a metric, names of metrics, a collection, or a wrapper of one. It is copied, and does not change. Results
            have the keys of the collection; :class:`torchrank.RankingCollection` has an option ``keys`` for their
            spelling. Trainer adds ``eval_``, so ``metric_for_best_model="ndcg@10"`` finds ``eval_ndcg@10``.
        unpack: a function from Trainer's ``EvalPrediction`` to the arguments of ``update``: a tuple, or a dict of
            keywords. Arrays in the result may be NumPy's. None = :func:`scores_and_labels`. Lists of relevant ids
            beside scores need ``unpack=lambda p: (p.predictions, list(p.label_ids))``. With ``batch_eval_metrics=True``
            Trainer does not gather ``inputs``, so on several processes an ``unpack`` cannot use them.

    Returns:
        A callable ``(prediction, compute_result=True)``, which returns floats by key; ``{}`` for a batch that is not
        the last one. Its attribute ``suite`` is the copy, which is empty between two evaluations.

    Raises:
        ValueError: of the callable: a metric returns several numbers, or the arguments do not fit the suite.

    Example:
        >>> import numpy as np, torchrank as tr
        >>> from types import SimpleNamespace
        >>> compute = tr.integrations.huggingface.compute_metrics("mrr, hitrate@1")
        >>> scores, labels = np.array([[0.9, 0.1], [0.2, 0.3]]), np.array([0, 0])
        >>> compute(SimpleNamespace(predictions=scores, label_ids=labels))  # Trainer passes an EvalPrediction
        {'mrr': 0.75, 'hitrate@1': 0.5}
    """
    return ComputeMetrics(alone(suite), unpack or scores_and_labels)


def scores_and_labels(prediction: Prediction) -> dict[str, Any]:
    """The arguments of ``update`` for predictions that are scores: the default ``unpack``.

    Labels are a column [query] or grades [query, candidate]; beside ranked ids also ids [query, entry]. Trainer pads
    shorter rows of scores and of labels with -100. So a candidate with the grade -100 is not a candidate, and a query
    whose labels are all -100 does not count. Labels of dtype bool cannot be padded: -100 becomes True there.

    Raises:
        ValueError: the predictions or the labels are None, or a tuple, of a model with several outputs or labels.
    """
    for name in ("predictions", "label_ids"):
        if (array := getattr(prediction, name)) is None:
            raise ValueError(f"Expected {name} to be one array, got None; name the labels in label_names of Trainer")
        if isinstance(array, tuple | list | Mapping):
            raise ValueError(
                f"Expected {name} to be one array, got {len(array)}; choose by"
                " compute_metrics(suite, unpack=lambda p: (p.predictions[0], p.label_ids))"
            )
    scores, labels = _tensors((prediction.predictions, prediction.label_ids))
    arguments = {"preds": scores, "target": labels}
    if scores.is_floating_point() and labels.dim() == 2 and labels.shape == scores.shape:
        mask = labels != PADDING
        counted = mask.any(-1)
        if not mask.all():
            arguments["mask"] = mask
        if not counted.all():
            arguments["weights"] = counted.to(torch.float32)
    return arguments


@dataclass(frozen=True)
class ComputeMetrics:
    """The callable that :func:`compute_metrics` returns."""

    suite: Any
    unpack: Callable[[Any], Arguments]

    def __call__(self, prediction: Prediction, compute_result: bool = True) -> dict[str, float]:
        last = True  # an error ends the evaluation, too
        try:
            for batch in _batches(prediction):
                arguments = self.unpack(batch)
                if isinstance(arguments, Mapping):
                    self.suite.update(**_tensors(dict(arguments)))
                else:
                    self.suite.update(*_tensors(tuple(arguments)))
            last = compute_result
            return floats(self.suite) if last else {}
        finally:
            if last:
                self.suite.reset()


def _batches(prediction: Prediction) -> Iterator[Any]:
    """A prediction, or each of its batches if Trainer has not concatenated them."""
    if not (isinstance(prediction.predictions, list) and isinstance(prediction.label_ids, list)):
        yield prediction
        return
    fields = {name: getattr(prediction, name, None) for name in ("predictions", "label_ids", "inputs", "losses")}
    for number in range(len(prediction.predictions)):
        yield SimpleNamespace(
            **{name: values[number] if isinstance(values, list) else None for name, values in fields.items()}
        )


def _tensors(value: Any) -> Any:
    """Tensors in place of NumPy's arrays, in tuples, lists and dicts too."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {name: _tensors(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_tensors(item) for item in value)
    return value
