#!/usr/bin/env bash
# catboost 1.2.10: an object as eval_metric works without numba wherever its class is defined. Where numba 0.68.1 is
# installed, CatBoost reads the source of the methods to compile them, so a class without a file (a program from standard
# input or python -c) raises OSError "could not get source code", although the
# object is only called.
# Seen: without numba 0.5; with numba OSError could not get source code.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check catboost==1.2.10 numpy==2.4.6
program='
import catboost


class Metric:
    def is_max_optimal(self):
        return True

    def evaluate(self, approxes, target, weight):
        return 0.5, 1.0

    def get_final_error(self, error, weight):
        return error / weight


model = catboost.CatBoost({"iterations": 1, "eval_metric": Metric(), "verbose": 0, "allow_writing_files": False})
try:
    model.fit(catboost.Pool([[0.0], [1.0]], [0, 1]))
    print(model.get_evals_result()["learn"]["Metric"][0])
except OSError as error:
    print("OSError", error)
'
without=$(venv/bin/python -c "$program" 2>/dev/null)
venv/bin/pip install -q --disable-pip-version-check numba==0.68.1
with=$(venv/bin/python -c "$program" 2>/dev/null)
printf 'without numba: %s\nwith numba: %s\n' "$without" "$with"
[ "$without" = 0.5 ] && [ "$with" = "OSError could not get source code" ]
