"""The option ``--html``: the report of ``torchrank eval`` and ``torchrank compare``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchrank.evaluation.evaluation import Evaluation
    from torchrank.statistics.comparison import Comparison

#: largest losses in a report, if ``--worst`` is not given
WORST = 10


def write_report(
    found: Evaluation,
    comparison: Comparison | None,
    options: argparse.Namespace,
    about: Mapping[str, Any],
    gates: Mapping[str, bool] | None = None,
) -> None:
    """Write the report of an evaluation, with its files and the digest of the judgments.

    Raises:
        ValueError: the runs cannot be compared.
        OSError: the file cannot be written.
    """
    qrels = about["qrels"]
    facts = {
        "Files of runs": ", ".join(options.runs),
        "Judgments": qrels["path"],
        "Digest of the judgments": f"blake2b {qrels['blake2b']}" if qrels["blake2b"] else "none, not a file",
    }
    if comparison:
        facts["Seed"] = f"{options.seed}, of tests that draw"
    found.to_html(
        options.html,
        comparison=comparison,
        about=facts,
        gates=gates,
        worst=getattr(options, "worst", None) or WORST,
        level=getattr(options, "interval", 0.95),
    )
