"""sentence-transformers: evaluators of retrievers and of rerankers, for its trainers and for themselves."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import normalize

from torchrank.integrations.workers import AnySuite, alone, floats, members
from torchrank.names.arguments import integer, one_of
from torchrank.ranking.ranking import Ranking


def _base() -> Any:
    """The class of their evaluators, because their trainers accept its subclasses only."""
    if find_spec("sentence_transformers") is None:
        return object
    try:
        from sentence_transformers.base.evaluation import BaseEvaluator
    except ModuleNotFoundError:  # before version 6
        from sentence_transformers.evaluation import SentenceEvaluator as BaseEvaluator
    return BaseEvaluator


if TYPE_CHECKING:
    Base = object
else:
    Base = _base()

#: relevant documents of each query, or their grades
Relevant = Mapping[Any, Collection[Any] | Mapping[Any, float]]

#: similarities of embeddings
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

#: similarities of a corpus that processes share
SHARED_SIMILARITIES = ("cosine", "dot")


class Evaluator(Base):
    """The suite, the keys, the CSV file and the model card of an evaluator; subclasses compute the scores."""

    def __init__(
        self,
        suite: AnySuite,
        name: str,
        primary_metric: str | None,
        write_csv: bool,
        options: dict[str, Any],
        settings: dict[str, Any],
        similarity: str | None = "",
    ) -> None:
        super().__init__()
        self.suite, self.name, self.write_csv = alone(suite), name, write_csv
        self.options, self.settings = options, {key: value for key, value in settings.items() if value is not None}
        self.similarity: Any = similarity  # in the keys; "" = not in the keys, None = not known yet
        better = {key: metric.higher_is_better for key, metric in members(self.suite).items()}
        self.primary_metric = next(iter(better)) if primary_metric is None else primary_metric
        one_of("primary_metric", self._primary, better)
        self.greater_is_better = better[self._primary] is not False

    @property
    def primary_metric(self) -> str:
        """The key of a result that selects checkpoints, e.g. for ``metric_for_best_model``.

        Raises:
            AttributeError: the key has the similarity of a model, and no model has been evaluated yet.
        """
        if self.similarity is None:
            raise AttributeError(
                "Expected an evaluation before primary_metric is read, because the model names its similarity, got"
                " none; pass similarity=model.similarity_fn_name to the evaluator"
            )
        return self._key(self._primary)

    @primary_metric.setter
    def primary_metric(self, label: str) -> None:  # the constructor of their class sets None
        self._primary = label

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Compute the scores of a model, and return the values of the suite, floats by key.

        Args:
            model: a model of sentence-transformers.
            output_path: the folder of the CSV file; None = write none.
            epoch: time of the evaluation, for the CSV file and the model card; -1 = after training.
            steps: number of training steps, for the same.
        """
        try:
            self._update(model)
            values = {self._key(label): value for label, value in floats(self.suite).items()}
        finally:
            self.suite.reset()
        if output_path is not None and self.write_csv:
            self._write(Path(output_path), {"epoch": epoch, "steps": steps, **values})
        if hasattr(model, "model_card_data"):
            model.model_card_data.set_evaluation_metrics(self, values, epoch, steps)
        return values

    def get_config_dict(self) -> dict[str, Any]:
        """The settings for a model card."""
        return dict(self.settings)

    def _update(self, model: Any) -> None:
        """Update the suite with the scores of a model."""
        raise NotImplementedError

    def _key(self, label: str) -> str:
        return "_".join(part for part in (self.name, self.similarity, label) if part)

    def _write(self, folder: Path, row: Mapping[str, Any]) -> None:
        """Append a row to the CSV file, which begins with the keys."""
        folder.mkdir(parents=True, exist_ok=True)
        kind = type(self).__name__.removesuffix("Evaluator")
        path = folder / f"{kind}_evaluation{'_' * bool(self.name)}{self.name}_results.csv"
        new = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


class RankingEvaluator(Evaluator):
    """The measures of a suite for queries and a corpus that a model encodes; a ``SentenceEvaluator``.

    Models are ``SentenceTransformer``, ``SparseEncoder`` and ``MultiVectorEncoder``. It has the interface of
    ``InformationRetrievalEvaluator``: keys ``name_cosine_ndcg@10``, ``primary_metric``, ``greater_is_better``, a CSV
    file, and model cards. The embeddings of the corpus are in memory once, scores a chunk of documents at a time.

    For the same settings the numbers are those of ``InformationRetrievalEvaluator``: ``hitrate@k`` is its accuracy@k,
    and ``precision@k``, ``recall@k``, ``mrr@k`` and ``ndcg@k`` have its names. ``map(normalize=min)@k`` is its map@k.
    These differ:

    - Documents with equal scores, e.g. of equal texts, have the expectation over their orders. There the smaller id
      is first.
    - A relevant document that is not in the corpus raises ValueError. There it counts as not found.
    - Grades are used; there all relevant documents are equal.

    Args:
        queries: texts, or other inputs of the model, by id. A query without relevant documents is left out.
        corpus: documents by id.
        relevant: a set of document ids, or a dict from document ids to grades, for each query id.
        suite: a metric, names of metrics, or a collection. It is copied, and does not change.
        name: the beginning of keys, and part of the name of the CSV file.
        primary_metric: the key in the suite of the metric that selects checkpoints; None = the first one.
        similarity: "cosine", "dot", "euclidean" or "manhattan", the last two as negative distances. None = the
            similarity of the model, whose name is in the keys.
        batch_size: number of texts in one batch of the model.
        corpus_chunk_size: number of documents in one call of the model. Their scores for all queries are in memory.
        show_progress_bar: show progress bars of the model.
        write_csv: append a row to ``<output_path>/Ranking_evaluation_<name>_results.csv`` at each call.
        share: each process of torch.distributed encodes a slice of the corpus, and keeps the embeddings of this slice
            only. All processes must call the evaluator, with the same arguments, and get the same values; the first one
            writes the CSV file. For dense embeddings and "cosine" or "dot". Trainers of sentence-transformers call
            evaluators in the first process only; :class:`SharedEvaluation` changes that.
        truncate_dim: number of dimensions of embeddings to use; None = all.
        query_prompt, query_prompt_name, corpus_prompt, corpus_prompt_name: as in ``model.encode``.

    Attributes:
        primary_metric: the key of a result that selects checkpoints, e.g. for ``metric_for_best_model``. With
            ``similarity=None`` it is there after the first evaluation.
        greater_is_better: whether a higher value of the primary metric is better.

    Raises:
        ValueError: an argument has an unknown value, a relevant document is not in the corpus, or no query has any.
            Of the call with ``share=True``: the similarity is another one.
        RuntimeError: of the call with ``share=True``: a trainer calls the evaluator in the first process only, so that
            it would wait for the others; a process failed, or has other queries or documents. Raised in all processes.

    Example:
        >>> import torch, torchrank as tr
        >>> class Letters:  # a SentenceTransformer has these attributes
        ...     def encode_query(self, texts, **options):
        ...         return torch.tensor([[float(text.count(letter)) for letter in "abc"] for text in texts])
        ...     encode_document = encode_query
        ...     similarity_fn_name, similarity = "dot", staticmethod(lambda queries, documents: queries @ documents.T)
        >>> evaluator = tr.integrations.sentence_transformers.RankingEvaluator(
        ...     {"q1": "a", "q2": "b"}, {"d1": "aaac", "d2": "bc", "d3": "ab"}, {"q1": {"d1"}, "q2": {"d3"}},
        ...     "mrr recall@1", name="dev",
        ... )
        >>> evaluator(Letters())
        {'dev_dot_mrr': 0.875, 'dev_dot_recall@1': 0.75}
        >>> evaluator.primary_metric
        'dev_dot_mrr'
    """

    def __init__(
        self,
        queries: Mapping[Any, Any],
        corpus: Mapping[Any, Any],
        relevant: Relevant,
        suite: AnySuite = "ndcg@10",
        *,
        name: str = "",
        primary_metric: str | None = None,
        similarity: str | None = None,
        batch_size: int = 32,
        corpus_chunk_size: int = 50_000,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        share: bool = False,
        truncate_dim: int | None = None,
        query_prompt: str | None = None,
        query_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        corpus_prompt_name: str | None = None,
    ) -> None:
        if similarity is not None:
            one_of("similarity", similarity, SHARED_SIMILARITIES if share else SIMILARITIES)
        options = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        settings = {
            "truncate_dim": truncate_dim,
            "query_prompt": query_prompt,
            "query_prompt_name": query_prompt_name,
            "corpus_prompt": corpus_prompt,
            "corpus_prompt_name": corpus_prompt_name,
        }
        super().__init__(suite, name, primary_metric, write_csv, options, settings, similarity)
        self.named, self.share = similarity is not None, share
        integer("corpus_chunk_size", corpus_chunk_size, least=1, or_none=False)
        self.corpus_chunk_size = corpus_chunk_size
        judged = _judged(queries, relevant)
        self.queries, self.corpus = [queries[query] for query in judged], list(corpus.values())
        numbers = {document: number for number, document in enumerate(corpus)}
        rows = [
            (number, _in_corpus(numbers, document, f"relevant documents of query {query!r}"), grade)
            for number, (query, grades) in enumerate(judged.items())
            for document, grade in grades.items()
        ]
        query, item, grade = (torch.tensor(column, device="cpu") for column in zip(*rows))
        self.relevant = query, item, grade.float()
        # A metric that cannot read such rankings raises now, and not after the corpus is encoded.
        score = torch.ones((1, 1), dtype=torch.float32, device="cpu")
        self.suite.update(Ranking.from_score_blocks([score], torch.zeros(1, dtype=torch.int64, device="cpu")))
        self.suite.reset()

    def _update(self, model: Any) -> None:
        if self.named:
            from sentence_transformers.util import SimilarityFunction

            similarity = SimilarityFunction.to_similarity_fn(self.similarity)
        else:
            similarity, self.similarity = model.similarity, model.similarity_fn_name
        if self._processes() > 1:
            self.suite.update(self._shared_ranking(model))
            return
        queries = self._encode(model.encode_query, self.queries, "query")
        starts = range(0, len(self.corpus), self.corpus_chunk_size)
        chunks = [self.corpus[start : start + self.corpus_chunk_size] for start in starts]
        corpus = [self._encode(model.encode_document, chunk, "corpus") for chunk in chunks]
        blocks = lambda: (similarity(queries, chunk) for chunk in corpus)  # noqa: E731
        self.suite.update(Ranking.from_score_blocks(blocks, self.relevant))

    def _processes(self) -> int:
        """The number of processes that share the corpus."""
        return dist.get_world_size() if self.share and dist.is_available() and dist.is_initialized() else 1

    def _shared_ranking(self, model: Any) -> Ranking:
        """The ranking of the whole corpus, in each process, which keeps the embeddings of a slice of it.

        Raises:
            ValueError: the similarity is another one.
            RuntimeError: the other processes do not call the evaluator; or one of them failed, or has other texts.
        """
        if getattr(model, "_distributed_inference", None) is not None:
            raise RuntimeError(
                "Expected all processes to call an evaluator with share=True, got a trainer that calls it in the first"
                " one only; make the trainer of class Trainer(SharedEvaluation, SentenceTransformerTrainer), with"
                " torchrank.integrations.sentence_transformers.SharedEvaluation, or leave out share"
            )
        one_of("the similarity of a model with share=True", self.similarity, SHARED_SIMILARITIES)
        world, rank, failure = dist.get_world_size(), dist.get_rank(), None
        try:
            queries = self._encode(model.encode_query, _slice(self.queries, rank, world), "query")
            if queries.layout != torch.strided:
                raise TypeError("Expected dense embeddings with share=True, got sparse ones; leave out share")
            texts = _slice(self.corpus, rank, world)
            corpus = queries.new_empty((len(texts), queries.shape[1]))
            for start in range(0, len(texts), self.corpus_chunk_size):
                chunk = self._encode(model.encode_document, texts[start : start + self.corpus_chunk_size], "corpus")
                # Of unit vectors, so that cosines are products without a second copy of the slice.
                corpus[start : start + len(chunk)] = normalize(chunk, dim=-1) if self.similarity == "cosine" else chunk
        except Exception as error:
            failure = error
        told: list[Any] = [None] * world
        sizes = len(self.queries), len(self.corpus)
        dist.all_gather_object(told, (sizes, failure and f"process {rank}: {type(failure).__name__}: {failure}"))
        failures = [text for _, text in told if text]
        if failures:
            raise RuntimeError(f"Expected all processes to encode their slices, got {'; '.join(failures)}") from failure
        if any(other != sizes for other, _ in told):
            raise RuntimeError(
                "Expected the same queries and corpus in all processes, got"
                f" {[other for other, _ in told]} of them; pass all queries and documents in each process"
            )
        gathered = [torch.empty_like(queries) for _ in range(world)]
        dist.all_gather(gathered, queries)
        # The slices have one size, so the last ones end with copies of the last text.
        own = corpus[: max(0, len(self.corpus) - rank * len(corpus))]
        queries = torch.cat(gathered)[: len(self.queries)]
        queries = normalize(queries, dim=-1) if self.similarity == "cosine" else queries
        return Ranking.from_embeddings(queries, own, self.relevant, group=None)

    def _write(self, folder: Path, row: Mapping[str, Any]) -> None:
        if self._processes() == 1 or dist.get_rank() == 0:
            super()._write(folder, row)

    def _encode(self, encode: Any, texts: list[Any], kind: str) -> Any:
        """Embeddings of texts: a tensor, dense or sparse; or of a MultiVectorEncoder a list of tensors."""
        names = {"truncate_dim": "truncate_dim", "prompt": f"{kind}_prompt", "prompt_name": f"{kind}_prompt_name"}
        settings = {name: self.settings[key] for name, key in names.items() if key in self.settings}
        if "maxsim" not in self.similarity:
            settings["convert_to_tensor"] = True
        return encode(texts, **self.options, **settings)


def _slice(texts: list[Any], rank: int, world: int) -> list[Any]:
    """The texts of a process. All slices have one size, because processes that share a model call it equally often."""
    size = -(-len(texts) // world)
    own = texts[rank * size : (rank + 1) * size]
    return own + texts[-1:] * (size - len(own))


class SharedEvaluation:
    """The trainers of sentence-transformers, with an evaluator that all processes call; write it before the trainer.

    Their trainer calls the evaluator in the first process, which keeps all embeddings, while the others encode for it.
    With this class, all processes call it, and :class:`RankingEvaluator` with ``share=True`` splits the corpus.

    Example:
        >>> from torchrank.integrations.sentence_transformers import RankingEvaluator, SharedEvaluation
        >>> class Trainer(SharedEvaluation, SentenceTransformerTrainer):  # doctest: +SKIP
        ...     pass
        >>> evaluator = RankingEvaluator(queries, corpus, relevant, share=True)  # doctest: +SKIP
        >>> Trainer(model, args, train_dataset=pairs, loss=loss, evaluator=evaluator).train()  # doctest: +SKIP
    """

    def evaluation_loop(
        self: Any,
        dataloader: Any,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        """The loss of a data set, as the trainer computes it, and the values of the evaluator."""
        evaluator, self.evaluator = self.evaluator, None
        try:
            output = super().evaluation_loop(  # type: ignore[misc]
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        finally:
            self.evaluator = evaluator
        # As in their trainer: of several data sets, the evaluator belongs to the first one.
        if self.is_in_train and isinstance(self.eval_dataset, dict) and metric_key_prefix.startswith("eval_"):
            if metric_key_prefix != f"eval_{next(iter(self.eval_dataset))}":
                return output
            metric_key_prefix = "eval"
        if evaluator is not None:
            folder = None
            if self.is_world_process_zero():
                folder = os.path.join(self.args.output_dir, "eval")
                os.makedirs(folder, exist_ok=True)
            values = evaluator(self.model, folder, epoch=self.state.epoch, steps=self.state.global_step)
            for key, value in values.items():
                prefix = "" if key.startswith(f"{metric_key_prefix}_") else f"{metric_key_prefix}_"
                output.metrics[prefix + key] = value
        return output


class RerankingEvaluator(Evaluator):
    """The measures of a suite for candidates that a ``CrossEncoder`` scores; a ``SentenceEvaluator``.

    It is used as :class:`RankingEvaluator`, with keys ``name_ndcg@10``. A relevant document that is not a candidate of
    its query was not retrieved, so it lowers recall and nDCG. For the same candidates the numbers are those of
    ``CrossEncoderRerankingEvaluator``, if no scores are equal. All its positives are candidates, unless
    ``always_rerank_positives=False``.

    Args:
        queries: texts by id. A query without relevant documents is left out.
        corpus: texts of documents by id.
        candidates: ids of documents, or a dict from ids to scores of a first retriever, for each query id.
        relevant: a set of document ids, or a dict from document ids to grades, for each query id.
        suite, name, primary_metric, batch_size, show_progress_bar: as in :class:`RankingEvaluator`.
        write_csv: append a row to ``<output_path>/Reranking_evaluation_<name>_results.csv`` at each call.
        prompt, prompt_name: as in ``model.predict``.

    Attributes:
        primary_metric, greater_is_better: as in :class:`RankingEvaluator`.

    Raises:
        ValueError: an argument has an unknown value, a candidate is not in the corpus, or no query has relevant
            documents and candidates. Of the call: the model has several scores for a pair.

    Example:
        >>> import torch, torchrank as tr
        >>> class Overlap:  # a CrossEncoder has this method
        ...     def predict(self, pairs, **options):
        ...         return torch.tensor([float(len(set(query) & set(document))) for query, document in pairs])
        >>> evaluator = tr.integrations.sentence_transformers.RerankingEvaluator(
        ...     {"q1": "ab", "q2": "b"}, {"d1": "abc", "d2": "b", "d3": "ac"},
        ...     {"q1": ["d3", "d1"], "q2": ["d1", "d3"]}, {"q1": {"d1"}, "q2": {"d1", "d2"}}, "mrr recall@1",
        ... )
        >>> evaluator(Overlap())
        {'mrr': 1.0, 'recall@1': 0.75}
    """

    def __init__(
        self,
        queries: Mapping[Any, Any],
        corpus: Mapping[Any, Any],
        candidates: Mapping[Any, Iterable[Any]],
        relevant: Relevant,
        suite: AnySuite = "ndcg@10",
        *,
        name: str = "",
        primary_metric: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        write_csv: bool = True,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> None:
        options = {"batch_size": batch_size, "show_progress_bar": show_progress_bar, "convert_to_tensor": True}
        super().__init__(
            suite, name, primary_metric, write_csv, options, {"prompt": prompt, "prompt_name": prompt_name}
        )
        self.pairs: list[Any] = []
        rows: list[tuple[int, float, bool]] = []
        for number, (query, grades) in enumerate(_judged(queries, relevant).items()):
            chosen = dict.fromkeys(candidates.get(query, ()))
            texts = [_in_corpus(corpus, document, f"candidates of query {query!r}") for document in chosen]
            self.pairs += [(queries[query], text) for text in texts]
            rows += [(number, grades.get(document, 0.0), True) for document in chosen]
            rows += [(number, grade, False) for document, grade in grades.items() if document not in chosen]
        if not self.pairs:
            raise ValueError(
                "Expected candidates of a query, got none; use the same query ids in queries and candidates"
            )
        self.query, self.grade, self.scored = (torch.tensor(column, device="cpu") for column in zip(*rows))
        self._add(torch.zeros(len(self.pairs), device="cpu"))  # a metric that cannot read such rows raises now
        self.suite.reset()

    def _update(self, model: Any) -> None:
        scores = model.predict(self.pairs, **self.options, **self.settings)
        if scores.dim() != 1:
            raise ValueError(
                f"Expected one score of each pair, got shape {list(scores.shape)}; make the CrossEncoder with"
                " num_labels=1"
            )
        self._add(scores)

    def _add(self, scores: Tensor) -> None:
        query, grade, scored = (x.to(scores.device) for x in (self.query, self.grade, self.scored))
        every = scores.new_full((len(query),), -torch.inf)
        every[scored] = scores
        self.suite.update(every, grade, indexes=query)


def _judged(queries: Mapping[Any, Any], relevant: Relevant) -> dict[Any, Mapping[Any, float]]:
    """The grades of documents, for each query that has relevant documents.

    Raises:
        ValueError: no query has relevant documents.
    """
    judged = {query: relevant[query] for query in queries if len(relevant.get(query, ()))}
    if not judged:
        raise ValueError("Expected relevant documents of a query, got none; use the same query ids in both")
    return {
        query: {document: float(grade) for document, grade in documents.items()}
        if isinstance(documents, Mapping)
        else dict.fromkeys(documents, 1.0)
        for query, documents in judged.items()
    }


def _in_corpus(corpus: Mapping[Any, Any], document: Any, whose: str) -> Any:
    """The value of a document in a corpus.

    Raises:
        ValueError: the document is not in the corpus.
    """
    if document not in corpus:
        raise ValueError(
            f"Expected {whose} in the corpus, got {document!r}, which is not in it; add it to the corpus, or leave it"
            " out"
        )
    return corpus[document]
