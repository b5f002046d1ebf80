"""Queries for other libraries."""

import random

import numpy as np
import torch


def collection(seed, tied, grades=(0, 0, 0, 1, 1, 2, 3)):
    """Judgments and a run, with unjudged documents in it and judged ones that it lacks.

    trec_eval sees scores in single precision; those here are exact in it.
    """
    rng = random.Random(seed)
    qrels, run = {}, {}
    for number in range(60):
        # Names of unequal length, of which the order as text is not that as numbers; and a prefix of another.
        documents = [f"d{i}" for i in range(rng.randint(2, 40))] + ["D", "d", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
        listed = rng.sample(documents, rng.randint(1, len(documents)))
        judged = rng.sample(documents, rng.randint(1, len(documents)))
        qrels[f"q{number}"] = {document: rng.choice(grades) for document in judged}
        most = rng.choice((1, 2, 5)) if tied else 1000
        drawn = [rng.randint(-most, most) / 8 for _ in listed] if tied else rng.sample(range(-500, 500), len(listed))
        run[f"q{number}"] = {document: float(score) for document, score in zip(listed, drawn)}
    return qrels, run


def collections(tied, seeds=range(5), **kwargs):
    """The judgments and runs of several seeds in one."""
    qrels, run = {}, {}
    for seed in seeds:
        for whole, part in zip((qrels, run), collection(seed, tied, **kwargs)):
            whole.update({f"{seed} {query}": documents for query, documents in part.items()})
    return qrels, run


def edges(grades=(0, 0, 1, 2, 3)):
    """Judgments and a run of short lists: of no, one, or more relevant documents than are listed."""
    rng = random.Random(5)
    documents = [f"d{i}" for i in range(12)]
    positive, others = [[g for g in grades if (g > 0) == sign] for sign in (True, False)]
    qrels, run = {}, {}
    for number in range(40):
        relevant = (0, 1, 1, 2, 5, 11)[number % 6]
        judged = rng.sample(documents, max(relevant, 1) + number % 2)
        qrels[f"edge{number}"] = {d: rng.choice(positive if i < relevant else others) for i, d in enumerate(judged)}
        listed = rng.sample(documents, rng.randint(1, 4))
        run[f"edge{number}"] = {d: float(s) for d, s in zip(listed, rng.sample(range(100), len(listed)))}
    return qrels, run


def assert_agree(ours, theirs, label):
    torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=1e-6, atol=1e-6, msg=label)


def graded_batch(seed, tied):
    generator = np.random.default_rng(seed)
    target = generator.integers(0, 4, (40, 25))
    preds = generator.integers(-3, 4, target.shape) / 4 if tied else generator.normal(size=target.shape)
    return preds, target
