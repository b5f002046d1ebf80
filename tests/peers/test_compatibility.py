"""The same numbers as ir_measures has of compatibility."""

import random

import pytest

import torchrank as tr

peer = pytest.importorskip("ir_measures.providers.compat_provider")


@pytest.mark.parametrize("normalize", [True, False])
def test_runs_without_equal_scores_equal_ir_measures(normalize):
    rng = random.Random(7)
    qrels, run = {}, {}
    for number in range(80):
        retrieved = [f"d{n}" for n in range(rng.choice((1, 2, 10, 60)))]
        pool = [*retrieved, *(f"missing{n}" for n in range(6))]
        judged = rng.sample(pool, min(len(pool), rng.choice((1, 5, 30))))
        qrels[str(number)] = {document: rng.choice((-1, 0, 0, 1, 1, 2, 3)) for document in judged}
        run[str(number)] = dict(zip(retrieved, map(float, rng.sample(range(1, 1000), len(retrieved)))))
    ranking = tr.Ranking.from_run(qrels, run)
    for p in (0.5, 0.95, 0.999):
        want = [peer.compatibility(qrels[one], run[one], p, normalize) for one in qrels]
        assert max(want) > 0.5 > min(want)
        metric = tr.parse(f"Compat(p={p},normalize={normalize})")
        assert metric.score(ranking).tolist() == pytest.approx(want, rel=1e-12)
