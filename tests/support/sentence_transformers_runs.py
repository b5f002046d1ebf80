"""Evaluators whose corpus the processes of sentence-transformers' trainers share; the functions need the library."""

import csv
import random
from pathlib import Path

from tests.support import small_sentence_transformers as models
from torchrank.integrations.sentence_transformers import RankingEvaluator, SharedEvaluation

DRAW = random.Random(0)
TEXTS = [" ".join(f"w{DRAW.randrange(40)}" for _ in range(DRAW.randrange(3, 20))) for _ in range(150)]
QUERIES, CORPUS = dict(enumerate(TEXTS[:19])), dict(enumerate(TEXTS[19:]))
RELEVANT = {query: {DRAW.randrange(len(CORPUS)): 1 + n % 3 for n in range(query % 6)} for query in QUERIES}
SUITE = "ndcg@10 map mrr recall@5"


def evaluator(share=True, **options):
    return RankingEvaluator(QUERIES, CORPUS, RELEVANT, SUITE, name="dev", share=share, **options)


def trainer(folder, evaluator, kind, model, datasets=None):
    """A trainer that evaluates twice, and keeps the best model."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    bases = (SharedEvaluation, SentenceTransformerTrainer) if kind == "shared" else (SentenceTransformerTrainer,)
    best = {"metric_for_best_model": "eval_dev_cosine_ndcg@10", "learning_rate": 0.05}
    arguments = SentenceTransformerTrainingArguments(output_dir=folder, **models.TRAINING, **best)
    data = Dataset.from_dict({"anchor": TEXTS[:40], "positive": TEXTS[40:80]})
    return type("Trainer", bases, {})(
        *(model, arguments),
        train_dataset=data,
        eval_dataset=datasets and dict.fromkeys(datasets, data),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=evaluator,
    )


def encoded(model):
    """A list that gets the number of documents of each call of the model."""
    sizes, real = [], model.encode_document

    def counting(texts, **options):
        sizes.append(len(texts))
        return real(texts, **options)

    model.encode_document = counting
    return sizes


def trained(folder, kind, share, datasets=None):
    """The logged values, those after training, the rows of the file, and the documents that a process encoded."""
    model = models.dense()
    sizes = encoded(model)
    run = trainer(folder, evaluator(share, similarity="cosine"), kind, model, datasets)
    run.train()
    logged = [row for row in run.state.log_history if "eval_dev_cosine_mrr" in row]
    logged = [{key: row[key] for key in row if key.startswith("eval_dev_")} for row in logged]
    number, path = len(sizes), Path(folder, "eval", "Ranking_evaluation_dev_results.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        "logged": logged,
        "best": run.state.best_metric,
        "rows": [float(row["dev_cosine_ndcg@10"]) for row in rows],
        "documents": sizes[:number],
        "after": evaluator(share)(model),
        "alone": evaluator(share=False)(model),
    }


def refused(function):
    """The error of a call."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


def work(rank, world, folder):
    """All that a process tries."""
    kinds = {"shared": True, "plain": world == 1}
    found = {kind: trained(f"{folder}/{kind} of {world}", kind, share) for kind, share in kinds.items()}
    found["two data sets"] = trained(f"{folder}/data sets of {world}", "shared", True, ["one", "other"])
    model = models.dense()
    for similarity in ("dot", "cosine"):
        ways = [evaluator(share, similarity=similarity, query_prompt="w1 ")(model) for share in (True, False)]
        found[similarity] = ways
    if world > 1:
        in_plain = trainer(f"{folder}/served", evaluator(), "plain", model)
        sparse = refused(lambda: evaluator()(models.sparse()))
        found["errors"] = {"sparse": sparse, "served": refused(in_plain.evaluate)}
    return found
