#!/usr/bin/env bash
# scipy 1.17.1: the t distribution with one degree of freedom loses half of the digits near its median, where the Cauchy
# distribution, which is the same one, and the t distribution with two degrees keep all of them.
# Seen: 0.5 - t.sf(1e-8, 1) is 4.743e-09, not 1e-8 / pi = 3.183e-09; cauchy.sf has 3.183e-09, and t.sf(1e-8, 2) 3.536e-09.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check scipy==1.17.1 numpy==2.4.6
"$work/venv/bin/python" - <<'PYTHON'
import math

from scipy import stats

x = 1e-8
below = {"t, 1 degree": 0.5 - stats.t.sf(x, 1), "cauchy": 0.5 - stats.cauchy.sf(x), "t, 2 degrees": 0.5 - stats.t.sf(x, 2)}
print({name: f"{value:.4g}" for name, value in below.items()}, "1e-8 / pi:", f"{x / math.pi:.4g}")
assert math.isclose(below["cauchy"], x / math.pi, rel_tol=1e-6)
assert math.isclose(below["t, 2 degrees"], x * stats.t.pdf(0, 2), rel_tol=1e-6)
assert abs(below["t, 1 degree"] / (x / math.pi) - 1) > 0.3
PYTHON
