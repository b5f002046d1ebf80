"""The known names that are most like an unknown one."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable


def nearest(names: Iterable[str], known: dict[str, str]) -> list[str]:
    """Up to three names of different measures that are most like the given ones; a known one alone."""
    names = tuple(names)
    if exact := [name for name in names if name in known]:
        return exact[:1]
    likeness = {other: max(_likeness(name, other) for name in names) for other in known}
    hints: dict[str, str] = {}
    # Close to the best and not too far from the name: a bad hint is worse than none.
    for near in sorted(known, key=likeness.__getitem__, reverse=True):
        if likeness[near] >= 0.7 and likeness[near] > max(likeness.values()) - 0.15:
            hints.setdefault(known[near], near)
    return list(hints.values())[:3]


def keeps_words(name: str, other: str) -> bool:
    """Whether another name has at least half of each word of a name in a row, if the name has several words."""
    blocks = [{*range(b.b, b.b + b.size)} for b in difflib.SequenceMatcher(None, other, name).get_matching_blocks()]
    words = [{*range(*word.span())} for word in re.finditer(r"[^\W_]+", name)]
    return len(words) == 1 or all(2 * max(len(word & block) for block in blocks) >= len(word) for word in words)


def _likeness(name: str, other: str) -> float:
    # Half for common letters, half for common sequences: letters alone would make all anagrams equal.
    shared = 2 * (Counter(name) & Counter(other)).total() / (len(name) + len(other))
    return (shared + difflib.SequenceMatcher(None, other, name).ratio()) / 2


#: names of arguments, commands and libraries, each with other words of the field for it
SYNONYMS = {
    "top_k": "k at cutoff n topk top",
    "preds": "scores score y_score y_pred predictions logits input",
    "target": "labels label y_true grades relevance relevances targets",
    "mask": "ignore_index padding_mask valid",
    "exclude": "seen filter filter_items seen_items known train ignore",
    "query_ids": "query_id query queries qid qids user user_id user_ids users ids",
    "indexes": "query_id query_ids queries query qid qids user user_id user_ids users group_id indices",
    "group_sizes": "group groups sizes",
    "weights": "weight sample_weight sample_weights",
    "query": "qid query_id user user_id",
    "item": "doc doc_id document docid item_id",
    "by": "group groups groupby slice slices cohort",
    "qrels": "judgments ground_truth truth gold",
    "run": "runs predictions results",
    "measures": "metrics metric measure",
    "num_items": "n_items catalogue_size",
    "relevance_level": "rel threshold min_rel rel_level",
    "empty_target_action": "empty zero_division",
    "correction": "adjust method p_adjust",
    "baseline": "base control reference",
    "eval": "evaluate evaluation score",
    "lightgbm": "lgbm lgb",
    "xgboost": "xgb",
    "catboost": "cb cat",
}


def closest(name: str, known: Iterable[str]) -> list[str]:
    """The known names for which an unknown one is another word, or those that are most like it."""
    by_lower = {other.lower(): other for other in known}
    meant = [other for other, words in SYNONYMS.items() if other in by_lower and name.lower() in words.split()]
    return [by_lower[other] for other in meant or nearest([name.lower()], {other: other for other in by_lower})]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of an error message for an unknown name: the nearest known names, or nothing."""
    near = closest(str(name), known)  # an argument of another type is unknown, too
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
