"""Evaluations by Trainer of Hugging Face and by Accelerate on one or several processes, which import both."""

import contextlib

import torch

import torchrank as tr
from tests.support.random_batches import MEASURES, many, unpadded
from torchrank.integrations.huggingface import compute_metrics, scores_and_labels
from torchrank.retrieval import RetrievalMAP, RetrievalMRR

QUERIES, CANDIDATES, BATCH = 23, 9, 4
NAMES = ["ndcg@5,10", "map", "mrr", "recall@3"]


def scores():
    """float32 [query, candidate], with many ties."""
    return torch.randint(0, 6, (QUERIES, CANDIDATES), generator=torch.Generator().manual_seed(0)).float()


def column():
    """A right answer for each query, int64 [query]."""
    return torch.arange(QUERIES) % CANDIDATES


def grades(ragged=False):
    """int64 [query, candidate]; ``ragged``: -100 from the length of each list on."""
    found = torch.randint(0, 3, (QUERIES, CANDIDATES), generator=torch.Generator().manual_seed(1))
    lengths = 3 + torch.arange(QUERIES) % (CANDIDATES - 2)
    return torch.where(torch.arange(CANDIDATES) < lengths.unsqueeze(-1), found, -100) if ragged else found


class Model(torch.nn.Module):
    """Returns the scores that it gets."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, labels=None):
        logits = x * self.weight
        return {"loss": logits.mean(), "logits": logits}


class Dataset(torch.utils.data.Dataset):
    """A list for each query; of lists of several lengths only the candidates that exist."""

    def __init__(self, labels):
        self.labels, self.scores = labels, scores()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, query):
        labels = self.labels[query]
        length = int((labels != -100).sum()) if labels.dim() else CANDIDATES
        return {"x": self.scores[query, :length], "labels": labels[:length] if labels.dim() else labels}


def collate(rows):
    """A batch as wide as its longest list."""
    pad = torch.nn.utils.rnn.pad_sequence
    stacked = torch.stack if rows[0]["labels"].dim() == 0 else lambda x: pad(x, batch_first=True, padding_value=-100)
    scores = pad([row["x"] for row in rows], batch_first=True, padding_value=-100.0)
    return {"x": scores, "labels": stacked([row["labels"] for row in rows])}


def trainer(folder, model, data, metrics, options, **more):
    """A Trainer that evaluates on the CPU and writes nothing."""
    from transformers import Trainer, TrainingArguments

    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "per_device_eval_batch_size": BATCH}
    arguments = TrainingArguments(output_dir=folder, **quiet, **options)
    return Trainer(model, arguments, eval_dataset=data, compute_metrics=metrics, **more)


def evaluate_lists(folder):
    """The values of Trainer and the number of queries that were added, by labels and by the way to call."""
    found = {}
    kinds = {"one column": column(), "grades": grades(), "ragged grades": grades(ragged=True)}
    for kind, labels in kinds.items():
        for by_batch, joined in ((False, True), (True, True), (False, False)):
            added = []

            def unpack(prediction, added=added):
                added.append(len(prediction.label_ids))
                return scores_and_labels(prediction)

            options = {"batch_eval_metrics": by_batch, "eval_do_concat_batches": joined}
            options["remove_unused_columns"] = False
            metrics = compute_metrics(NAMES, unpack)
            one = trainer(folder, Model(), Dataset(labels), metrics, options, data_collator=collate)
            first, second = one.evaluate(), one.evaluate()
            assert [second[f"eval_{key}"] for key in ("map", "mrr")] == [first[f"eval_{key}"] for key in ("map", "mrr")]
            assert sum(added) % 2 == 0
            found[kind, by_batch, joined] = (first, sum(added) // 2)
    return found


class Pairs(torch.utils.data.Dataset):
    """A row for each query and candidate, so that batches cut queries."""

    def __len__(self):
        return QUERIES * CANDIDATES

    def __getitem__(self, row):
        query, candidate = divmod(row, CANDIDATES)
        labels = int(grades()[query, candidate] > 0)
        return {"x": scores()[query, candidate], "labels": labels, "qid": query}


class OfPairs(Model):
    """A model that gets the query of each row, as labels do."""

    def forward(self, x, labels=None, qid=None):
        return super().forward(x)


def evaluate_pairs(folder):
    """The values of Trainer for two evaluation sets of rows, with the classes that join the pieces of a query."""
    data = {"all": Pairs(), "half": torch.utils.data.Subset(Pairs(), range(10 * CANDIDATES))}
    found = {}
    for by_batch in (False, True):
        options = {"batch_eval_metrics": by_batch, "label_names": ["labels", "qid"]}
        metrics = compute_metrics({"map": RetrievalMAP(), "mrr": RetrievalMRR()}, rows)
        doubled = {"preprocess_logits_for_metrics": lambda logits, labels: logits * 2}
        found[by_batch] = trainer(folder, OfPairs(), data, metrics, options, **doubled).evaluate()
    return found


def rows(prediction):
    """The arguments of rows whose labels are a grade and a query."""
    return {"preds": prediction.predictions, "target": prediction.label_ids[0], "indexes": prediction.label_ids[1]}


def accelerate(folder):
    """Numbers of batches of a training loop, and the values of a validation loader that repeats nothing."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    data = TensorDataset(scores(), column())
    accelerator = Accelerator(cpu=True)
    buffers = torch.nn.BatchNorm1d(CANDIDATES, momentum=0.0)  # DDP sends buffers in every forward
    network = torch.nn.Sequential(torch.nn.Linear(CANDIDATES, CANDIDATES), buffers)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network, optimizer, train = accelerator.prepare(network, optimizer, DataLoader(data, BATCH))
    accelerator.even_batches = False
    validation = accelerator.prepare(DataLoader(data, BATCH))
    suite = tr.RankingCollection([*NAMES, "numq"])
    for x, y in train:
        accelerator.backward(torch.nn.functional.cross_entropy(network(x), y))
        optimizer.step()
        optimizer.zero_grad()
    model = accelerator.unwrap_model(network).eval()
    for x, y in validation:
        suite.update(model(x).detach(), y)
    return len(train), len(validation), suite.compute(), model(scores()).detach()


def accelerate_sampled(before):
    """The values of loaders that Accelerate has not prepared, and the errors of prepared ones, by their settings."""
    from accelerate import Accelerator, DataLoaderConfiguration

    ways = {
        "default": {},
        "split": {"split_batches": True},
        "seeded": {"use_seedable_sampler": True, "even_batches": False},
        "sent": {"dispatch_batches": True},
    }
    settings = {way: DataLoaderConfiguration(**options) for way, options in ways.items()}
    accelerators = {way: Accelerator(cpu=True, dataloader_config=one) for way, one in settings.items()}
    found = []
    for loader in (before, unpadded()):
        suite = tr.RankingCollection(MEASURES)
        for rows in loader:
            suite.update(*(column[rows] for column in many()))
        found.append({key: value.item() for key, value in suite.compute().items()})
    return found, {way: refused(accelerator.prepare(unpadded())) for way, accelerator in accelerators.items()}


def refused(loader):
    """The error of the first batch of a loader, None if there is none."""
    try:
        next(iter(loader))
    except ValueError as error:
        return str(error)


def trainer_sampled(folder):
    """The values of Trainer for 101 queries, and the error of one whose loader has an UnpaddedSampler."""
    data = [{"x": row, "labels": label} for row, label in zip(*many())]
    values = []
    for sampler in (None, tr.UnpaddedSampler):
        one = trainer(folder, Model(), data, compute_metrics(MEASURES), {})
        if sampler is not None:
            one._get_eval_sampler = sampler
        with contextlib.suppress(ValueError):
            values.append(one.evaluate())
    return values


def work(rank, world, folder):
    """All that a process tries."""
    before = unpadded()  # there is no process group yet
    return {
        "accelerate": accelerate(folder),
        "accelerate, sampled": accelerate_sampled(before),
        "trainer, sampled": trainer_sampled(folder),
        "lists": evaluate_lists(folder),
        "pairs": evaluate_pairs(folder),
    }
