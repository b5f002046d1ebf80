"""Evaluations of parts of a run, in small states that are added: for runs on several machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

import torchrank
from torchrank.evaluation.parts import Evaluator, Precision, Queries, check_queries
from torchrank.state.estimates import Estimate, Interval, estimate, estimate_table
from torchrank.state.exact import ExactSums
from torchrank.state.query_mean import QueryMean
from torchrank.state.sums import Sum
from torchrank.statistics.table import Table
from torchrank.tables.ids import ObjectIds
from torchrank.tables.table import Qrels, Ties
from torchrank.wrappers.hashing import hash_ids
from torchrank.wrappers.suites import Suite

# Groups of queries, by the hash of their ids, in which the queries of all parts are counted.
BUCKETS = 256
# Odd constants with well mixed bits.
ODD, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
