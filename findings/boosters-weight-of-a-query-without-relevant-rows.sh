#!/usr/bin/env bash
# lightgbm 4.7.0 and xgboost-cpu 3.2.0: nDCG counts a query without a relevant row as 1, but adds 1 for it where every other
# query adds its weight times its value. So the weighted mean over queries is too small if such a query weighs more than
# 1: two queries of perfect order, weights 1 and 3, the second one without a relevant row, have nDCG 0.5 and not 1.
# Seen: lightgbm [1.0, 0.5], xgboost [1.0, 0.5] for weights of the second query of 1 and 3.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check lightgbm==4.7.0 xgboost-cpu==3.2.0 numpy==2.4.6
"$work/venv/bin/python" - <<'PYTHON'
import lightgbm
import numpy as np
import xgboost

labels, scores, sizes = np.array([1.0, 0, 0, 0]), np.array([0.9, 0.1, 0.8, 0.2]), [2, 2]


def by_lightgbm(weight):
    settings = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [2], "verbosity": -1, "min_data_in_leaf": 1}
    rows = lightgbm.Dataset(
        np.zeros((4, 1)), labels, group=sizes, weight=[1.0, 1.0, weight, weight], init_score=scores, params=settings
    )
    return lightgbm.Booster(settings, rows).eval_train()[0][2]


def by_xgboost(weight):
    rows = xgboost.DMatrix(np.zeros((4, 1)), labels, base_margin=scores, group=sizes, weight=[1.0, weight])
    booster = xgboost.Booster({"objective": "rank:ndcg", "eval_metric": "ndcg@2", "nthread": 1}, [rows])
    return float(booster.eval(rows).split(":")[1])


libraries = {"lightgbm": by_lightgbm, "xgboost": by_xgboost}
found = {name: [round(float(of(weight)), 6) for weight in (1.0, 3.0)] for name, of in libraries.items()}
print(found)
assert found == {"lightgbm": [1.0, 0.5], "xgboost": [1.0, 0.5]}
PYTHON
