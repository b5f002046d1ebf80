#!/usr/bin/env bash
# catboost 1.2.10: of its ranking metrics, MRR and NDCG weigh each group by its group weight; MAP, PrecisionAt and
# RecallAt ignore group weights. In all but NDCG, a label is relevant above 0.5 (0.6 is), not at 1 or above 0.
# Seen: two groups, the first relevant row at ranks 1 and 2, weights 1 and 9: MRR 0.75 without weights and 0.55 with
# them, MAP 0.75 and 0.75, PrecisionAt and RecallAt 0.5 and 0.5. Labels 0.6 count as relevant, 0.5 and 0.2 do not.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check catboost==1.2.10 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from catboost.utils import eval_metric

scores, groups = [0.9, 0.5, 0.1, 0.9, 0.5, 0.1], [0, 0, 0, 1, 1, 1]
plain = {"group_id": groups}
weighed = {**plain, "group_weight": [1.0, 1.0, 1.0, 9.0, 9.0, 9.0]}


def value(metric, labels, options):
    (number,) = eval_metric(labels, scores, metric, **options)
    return round(number, 6)


names = ("MRR", "NDCG", "MAP:top=10", "PrecisionAt:top=1", "RecallAt:top=1")
found = {name: [value(name, [0.6, 0, 0.2, 0, 1, 0], options) for options in (plain, weighed)] for name in names}
for name, values in found.items():
    print(f"{name}: without group weights {values[0]}, with them {values[1]}")
assert found["MRR"] == [0.75, (1 + 9 / 2) / 10]
assert found["NDCG"][0] != found["NDCG"][1]
assert all(found[name][0] == found[name][1] for name in names[2:])

half = value("MRR", [0.5, 0.6, 0.2, 0.5, 0.6, 0.2], plain)
print("MRR of labels 0.5, 0.6, 0.2 in this order:", half)
assert half == 0.5
PYTHON
