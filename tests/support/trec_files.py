"""Judgments and runs, and their TREC files.

One collection has the cases in which tools differ: ties, scores that are equal in single precision only, judged queries
that the run lacks, a query without a relevant document, negative grades, unjudged documents, documents with the id of
their query, and lists of many lengths.
"""

import random


def collection_with_ties(seed=0, queries=24, unjudged_queries=0, missing=3):
    """Judgments {query: {document: grade}} and a run {query: {document: score}}."""
    draw = random.Random(seed)
    names = [f"q{number}" for number in range(queries + unjudged_queries)]
    # A document may have the id of a query; upper and lower case, digits and length decide ties.
    documents = [*names, *(f"{draw.choice('aBZ')}{number}" for number in range(40)), "d", "d1", "d10", "d2", "é", "Ω"]
    qrels = {}
    run = {}
    for number, name in enumerate(names):
        grades = [0] if number == 4 else [-1, 0, 0, 1, 1, 2, 3]
        judged = draw.sample(documents, draw.randint(1, 25))
        if number < queries:
            qrels[name] = {document: draw.choice(grades) for document in judged}
            if number != 4:  # tools divide by the number of relevant documents
                qrels[name][judged[0]] = draw.choice([1, 2, 3])
        if number >= missing:
            found = draw.sample(documents, draw.randint(1, len(documents)))
            found += [name] if number % 3 == 0 and name not in found else []
            near = [0.0, 1e-9, 2e-9, 5e-8]
            run[name] = {one: draw.choice([-1.0, 0.5, 1.0, 2.0]) + draw.choice(near) for one in found}
    return qrels, run


def write(folder, qrels, run):
    """Write both as TREC files, whose lines and ranks are in no order."""
    lines = [f"{query} 0 {document} {grade}\n" for query, table in qrels.items() for document, grade in table.items()]
    (folder / "qrels").write_text("".join(lines), encoding="utf-8")
    rows = [(query, document, score) for query, table in run.items() for document, score in table.items()]
    random.Random(1).shuffle(rows)
    text = "".join(f"{query} Q0 {document} 7 {score!r} tag\n" for query, document, score in rows)
    (folder / "run").write_text(text, encoding="utf-8")
    return folder / "qrels", folder / "run"


def two_runs(seed=0, queries=30, documents=40, missing=3):
    """Judgments, and two runs that lack some judged queries and have some that are not judged."""
    draw = random.Random(seed)
    names, runs = [f"d{d}" for d in range(documents)], {}
    qrels = {f"q{q}": {d: draw.choice([0, 0, 1, 2]) for d in draw.sample(names, 12)} for q in range(queries)}
    for name, noise in (("bm25", 3), ("dense", 1)):
        runs[name] = {}
        for q in range(missing, queries + 2):
            grades = qrels.get(f"q{q}", {})
            found = draw.sample(names, 25)
            runs[name][f"q{q}"] = {d: round(grades.get(d, 0) + noise * draw.random(), 1) for d in found}
    return qrels, runs


def files_of(folder, qrels, runs):
    """The files of judgments and runs, in TREC's format."""
    (folder / "qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, x in qrels.items() for d, g in x.items()))
    for name, run in runs.items():
        lines = (f"{q} Q0 {d} 1 {s} tag\n" for q, x in run.items() for d, s in x.items())
        (folder / f"{name}.run").write_text("".join(lines))
    return [str(folder / name) for name in ("qrels", *(f"{run}.run" for run in runs))]
