"""scikit-learn: a scorer with the query of each row, for cross-validation and searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.metrics import make_scorer

from torchrank.integrations.workers import AnySuite, alone, floats_of, members


def scorer(
    suite: AnySuite,
    *,
    qid: str = "qid",
    response_method: str | tuple[str, ...] = ("decision_function", "predict_proba", "predict"),
) -> Any:
    """A scorer for ``cross_validate``, ``GridSearchCV`` and other ``scoring=`` of scikit-learn.

    The query of each row is metadata, which scikit-learn routes to the scorer and cuts to the rows of a fold:

    .. code-block:: python

        sklearn.set_config(enable_metadata_routing=True)
        cross_validate(model, X, y, cv=GroupKFold(), params={"qid": q, "groups": q}, scoring=scorer("ndcg@10"))

    Folds must not cut queries, so use ``GroupKFold`` or ``StratifiedGroupKFold``. With ``qid="groups"`` the scorer
    reads the metadata of the splitter, and ``params={"groups": q}`` is enough. ``search.score`` takes the same
    metadata again. Rows of a query are in any order; equal scores have the mean over their orders.

    Args:
        suite: one metric, or its name; for several ones pass a dictionary of scorers.
        qid: the name of the metadata: the query of each row, numbers or texts.
        response_method: the method of the model that gives the scores; of several ones the first that it has.

    Returns:
        A scorer of ``sklearn.metrics.make_scorer``. Higher is better: a measure such as ``mr`` has a negative sign.

    Raises:
        ValueError: there are several metrics. In a score: queries are missing, or there is another number of them.

    Example:
        >>> import sklearn, torchrank as tr
        >>> from sklearn.dummy import DummyRegressor
        >>> scorer, model = tr.integrations.sklearn.scorer("mrr"), DummyRegressor().fit([[0]], [0])
        >>> with sklearn.config_context(enable_metadata_routing=True):
        ...     scorer(model, [[1], [2], [3]], [1, 0, 2], qid=["a", "a", "b"])  # ties: the mean of 1 and 1 / 2
        0.875
    """
    suite = alone(suite)
    if len(metrics := members(suite)) != 1:
        raise ValueError(f"Expected one metric, got {', '.join(metrics)}; pass scoring={{name: scorer(name), ...}}")
    ((name, metric),) = metrics.items()
    better = metric.higher_is_better is not False
    made = make_scorer(_Score(suite, name), response_method=response_method, greater_is_better=better)
    # Requests can be set with routing alone, which the user may switch on later.
    with sklearn.config_context(enable_metadata_routing=True):
        return made.set_score_request(qid=qid)


class _Score:
    """The function of the scorer, which can be copied to other processes."""

    def __init__(self, suite: Any, name: str) -> None:
        self.suite, self.__name__ = suite, name

    def __call__(self, y_true: Any, y_pred: Any, qid: Any = None) -> float:
        grades, scores = np.array(y_true), np.array(y_pred, dtype=np.float64)
        grades = grades if grades.dtype.kind in "biuf" else grades.astype(np.float64)
        if scores.ndim != 1:
            raise ValueError(
                f"Expected one score for each row, got shape {list(scores.shape)}; pass response_method='predict'"
            )
        if qid is None:
            raise ValueError(
                "Expected qid, the query of each row, got none; pass params={'qid': qid} to cross_validate, and"
                " qid=qid to fit and score of a search"
            )
        queries = np.asarray(qid)
        if queries.shape != grades.shape:  # scikit-learn cuts metadata of the length of X alone
            raise ValueError(
                f"Expected one qid for each of {len(grades)} rows of the fold, got shape {list(queries.shape)}; pass as"
                " many as X has rows"
            )
        numbers: dict[Any, int] = {}
        indexes = torch.tensor([numbers.setdefault(query, len(numbers)) for query in queries.tolist()], device="cpu")
        if any(not isinstance(query, str) and str(query) in ("None", "nan", "<NA>", "NaT") for query in numbers):
            raise ValueError("Expected a qid for each row, got missing ones; leave these rows out")
        (value,) = floats_of(self.suite, torch.from_numpy(scores), torch.from_numpy(grades), indexes=indexes).values()
        return value
