"""The benchmarks run, check their numbers, and print their tables from their file. No time is judged."""

import importlib
import json
import os
import re
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import torchrank as tr
from tests.support import workers
from torchrank.hardware import costs

ROOT = Path(__file__).parents[2]
PARTS = "__main__ by_measure launches measure memory plan plans report rows scale stages table trace visit workloads"


@pytest.fixture(scope="module")
def parts():
    """The modules of the benchmarks, which are not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield {name: importlib.import_module(f"benchmarks.{name}") for name in PARTS.split()}


@pytest.fixture(scope="module")
def command(parts):
    def run(*arguments):
        return parts["__main__"].main([str(argument) for argument in arguments])

    return run


def shown(capsys):
    return capsys.readouterr().out


def test_a_quick_run_writes_and_prints_its_table(parts, command, capsys, tmp_path):
    path = tmp_path / "results.json"
    assert command("--quick", "--only", "ltr,flat", "--out", path) == 0
    printed = shown(capsys)
    assert "mean nothing" in printed
    report = json.loads(path.read_text())
    assert report["quick"]
    assert report["machine"]["cores"] > 0
    assert report["versions"]["torch"] == torch.__version__
    rows = {"flat", "flat: precision@10, in no order", "flat: precision@10, in lists"}
    assert set(report["workloads"]) == {"ltr: no ties", "ltr: many ties", *rows}
    for key, row in report["workloads"].items():
        assert f"**{key}**" in printed
        for result in (row["contenders"]["torchrank"], row["contenders"][row["floor"]]):
            low, high = result["quartiles_ms"]
            assert 0 < low <= result["median_ms"] <= high
            assert 1 <= result["runs"] <= 3
        assert row["checks"] or key.startswith("flat: ")  # these have no other library beside them
        assert all(check["agree"] for check in row["checks"])
        for target in row["targets"]:
            assert (target["met"] is None) == (target["value"] is None)

    # The table is that of the file, also after later measurements.
    command("--table", path)
    assert shown(capsys) == printed
    report["workloads"]["flat"]["contenders"]["torchrank"]["median_ms"] = 98765.4
    path.write_text(json.dumps(report))
    command("--table", path)
    assert "98,765" in shown(capsys)

    # Workloads that are not measured again stay as they are.
    before = json.loads(path.read_text())["workloads"]
    command("--quick", "--only", "correlation", "--out", path)
    after = json.loads(path.read_text())["workloads"]
    assert {key.split(":")[0] for key in after.keys() - before.keys()} == {"correlation"}
    assert before.items() <= after.items()
    assert [*after] == [one.key for one in parts["workloads"].WORKLOADS if one.key in after]


@pytest.mark.xdist_group("processes")
def test_a_visit_runs_whole_on_a_cpu_and_its_file_becomes_the_page(parts, command, capsys, tmp_path):
    path = tmp_path / "visit.json"
    call, output, errors = ["--visit", "--device", "cpu", "--out", path], tmp_path / "output", tmp_path / "errors"
    status = workers.run_module("benchmarks", call, output, errors, ROOT)  # it forks, so this process must not run it
    assert status == 0, errors.read_text()
    found = json.loads(path.read_text())
    assert set(found["visit"]) == set(parts["visit"].PARTS)
    assert not any(part["failed"] for part in found["visit"].values())
    assert sum(found["visit"]["tests"]["counts"].values()) > 0
    assert sum(seconds for seconds, _ in parts["visit"].PARTS.values()) <= 8 * 60
    assert set(found["workloads"]) == set(parts["visit"].FEW)
    assert all(row["checks"][0]["agree"] for row in found["workloads"].values() if row["checks"])
    for name in ("whole", "any"):
        assert found["visit"]["bits"][f"float32, {name} numbers"]["other ranks"] == 0
    assert found["visit"]["workers"]["gloo"] == found["visit"]["workers"]["alone"]
    assert command("--visit", "--table", path) == 0
    printed = shown(capsys)
    assert printed.strip() == output.read_text().strip()
    assert all(f"**{key}**" in printed for key in found["workloads"])


def hanging(settings):
    yield "before", 1
    time.sleep(60)


def raising(settings):
    yield "before", 1
    raise RuntimeError("no device\nand more")


def dying(settings):
    yield "before", 1
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("part", "fault"),
    [(hanging, "stopped after 0.5 seconds"), (raising, "RuntimeError: no device"), (dying, "ended with status -9")],
)
def test_a_part_of_a_visit_that_fails_is_told_with_what_it_had_found(parts, part, fault):
    assert parts["visit"].isolated(part, parts["rows"].Settings(), 0.5) == ({"before": 1}, fault)


@pytest.mark.xdist_group("processes")
def test_workers_are_counted(parts):
    row = parts["rows"].measured(parts["workloads"].find("sync"), parts["rows"].Settings(quick=True))
    few, many = (row["contenders"][f"torchrank, {size}"] for size in ("few", "many"))
    assert 1 <= few["collectives"] == many["collectives"] <= 2
    assert 0 < few["bytes"] == many["bytes"]
    theirs = [row["contenders"][f"torchmetrics, {size}"]["bytes"] for size in ("few", "many")]
    assert theirs[0] < theirs[1]
    assert all(check["agree"] for check in row["checks"])


@pytest.mark.needs("pytrec_eval")
def test_numbers_of_torchrank_are_those_of_the_references(parts):
    plan, rows, counted = parts["plan"], parts["rows"], 0
    for workload in parts["workloads"].WORKLOADS:
        for name, reference in workload.references.items():
            data = workload.make(workload.quick, "cpu")
            ours, theirs = (ready(data) for ready in (workload.contenders[plan.OURS], reference))
            check = rows.compared(*(ready.read(ready.run()) for ready in (ours, theirs)), name)
            assert check["labels"], workload.key
            assert check["agree"], (workload.key, check)
            counted += 1
    assert counted > 6


def test_results_of_other_machines_are_never_mixed(parts, tmp_path):
    path = tmp_path / "results.json"
    fresh = parts["report"].new("cpu", quick=True)
    for other in ({**fresh, "quick": False}, {**fresh, "machine": {"cpu": "abacus"}}):
        path.write_text(json.dumps(other))
        with pytest.raises(parts["report"].RefusedError, match="Expected"):
            parts["report"].merged(fresh, path)


def test_peers_that_are_not_installed_are_named(parts):
    def missing(data):
        raise ImportError("No module named 'peer'")

    def broken(data):
        raise RuntimeError("no idea")

    plan, rows = parts["plan"], parts["rows"]
    here = plan.Prepared(lambda: 0, lambda found: {"a": torch.tensor(1.0)})
    other = plan.Prepared(lambda: 0, lambda found: {"a": torch.tensor(1.1)})
    contenders = {plan.OURS: lambda data: here, "peer": missing, "rival": broken, "sloppy": lambda data: other}
    targets = (plan.faster(2, "peer"), plan.at_most(1e9, "sloppy"), plan.faster(1e9, "sloppy"))
    row = rows.measured(plan.Workload("w", "", "", {}, {}, contenders=contenders, targets=targets), rows.Settings())
    assert set(row["contenders"]) == {plan.OURS, "sloppy"}
    assert row["skipped"] == {
        "peer": "not installed (No module named 'peer')",
        "rival": "failed: RuntimeError: no idea",
    }
    assert [target["met"] for target in row["targets"]] == [None, True, False]
    assert [(check["against"], check["agree"]) for check in row["checks"]] == [("sloppy", False)]
    asked = r"sloppy .*: \S+ of its time \(at most 1e\+09\), \*\*\S+ times as long\*\* \(at least 1e\+09: missed\)"
    assert re.search(asked, parts["table"].workloads({"w": row}))


def test_rounds_are_interleaved_and_rotate(parts):
    rounds = list(parts["measure"].rounds({"fast": 6, "slow": 3, "other": 6}))
    assert [len(names) for names in rounds] == [2, 3, 2, 3, 2, 3]
    assert {names[0] for names in rounds} == {"fast", "slow", "other"}
    assert sum(names.count("slow") for names in rounds) == 3


@pytest.mark.xdist_group("processes")
def test_a_new_process_prints_its_extra_memory(tmp_path):
    shape = {"queries": 64, "items": 200_000, "dimensions": 4, "relevant": 1}
    asked = json.dumps(["catalogue: 1 relevant", "torchrank", shape, "cpu"])
    output, errors = tmp_path / "output", tmp_path / "errors"
    assert workers.run_module("benchmarks.child", [asked], output, errors, ROOT) == 0, errors.read_text()
    assert 0 <= float(output.read_text()) < 64 * 200_000 * 4 / 1e6  # less than the matrix of scores


def test_every_workload_has_targets_as_data(parts):
    workloads = parts["workloads"].WORKLOADS
    assert len({workload.key for workload in workloads}) == len(workloads)
    assert {workload.name for workload in workloads if workload.targets} == {workload.name for workload in workloads}
    for workload in workloads:
        assert workload.what.format(**workload.shape)
        assert set(workload.quick) == set(workload.shape)
        assert set(workload.grow.values()) <= set(workload.shape)
        if workload.measure is None:
            asked = {name for t in workload.targets for name in (t.contender, t.versus) if name}
            floor = {workload.floor} - {None}
            assert asked | floor | set(workload.memory) <= set(workload.contenders)


def test_short_table_has_one_other_library_beside_torchrank(command, capsys, parts):
    newest = parts["report"].newest("cpu")
    report = parts["report"].read(newest)
    assert command("--table", "--short") == 0
    lines = shown(capsys).splitlines()[2:]
    assert 0 < len(lines) <= len(parts["table"].SHORT) == 6
    for title, key, ours, other, quantity in parts["table"].SHORT:
        contenders = report["workloads"].get(key, {}).get("contenders", {})
        rows = [line for line in lines if line.startswith(f"| {title.partition('{')[0]}")]
        assert len(rows) == (ours in contenders and other in contenders)
        for row in rows:
            ratio = contenders[other][quantity] / contenders[ours][quantity]
            assert row.endswith(f"| {parts['table'].number(ratio)} |")


@pytest.mark.xdist_group("gpu")  # whose process has used the meta device, which takes seconds at first
@pytest.mark.parametrize(("case", "most"), [("of_label", 158), ("of_grades", 139)])
def test_a_batch_of_eight_measures_launches_few_kernels(parts, case, most):
    assert 40 < getattr(parts["launches"], case)().found.total() <= most


def test_kernels_are_counted_but_no_views_and_no_allocations(parts):
    x = torch.zeros(3, 4, dtype=torch.float32, device="meta")
    with parts["launches"].Launches() as seen:
        x.unsqueeze(0).expand(2, 3, 4)[0].T.detach()
        torch.empty(3, device="meta")
        torch.zeros(0, device="meta")
        torch.ones(5, device="cpu")
    assert not seen.found
    with parts["launches"].Launches() as seen:
        (x + 1).masked_fill(x > 0, 2)
    assert {name: n for (_, name), n in seen.found.items()} == {"add": 1, "gt": 1, "masked_fill": 2}
    assert seen.bytes.total() == (48 + 48) + (48 + 12) + (48 + 12 + 48)


def test_a_small_batch_makes_few_calls(assume, parts, command, capsys):
    assume(long=costs.Costs().long)
    found = parts["trace"].of_update()
    changes = sum(one.file != other.file for one, other in pairwise(found))
    assert 50 < len(found) <= 70
    assert len({call.file for call in found}) <= 14
    assert changes <= 40
    assert 500 < len(parts["trace"].of_evaluate()) <= 800
    assert command("--trace") == 0
    assert "RankingMetric.update  metrics/base.py" in shown(capsys)


def test_the_plan_of_each_row_is_printed(parts):
    plans = {key: parts["plans"].of(parts["workloads"].find(key), quick=True) for key in ("run", "flat", "next_item")}
    assert [said for (said,) in plans.values()] == [
        "the relevant candidates are judged items; rank the judged items of each list",
        "sort all rows together",
        "rank the judged items of each list",
    ]


@pytest.mark.parametrize(("target", "most"), [((8, 10), 291), ((8,), 319)], ids=["grades", "labels"])
def test_a_small_batch_of_eight_measures_makes_few_calls(parts, target, most):
    generator = torch.Generator().manual_seed(0)
    suite = tr.RankingCollection(parts["launches"].SUITE)
    suite.waits = False
    batch = torch.randn(8, 10, generator=generator), torch.randint(0, 2, target, generator=generator)
    for _ in range(2):  # the first batches make constants
        suite.update(*batch)
    assert 50 < len(parts["trace"].calls(lambda: suite.update(*batch))) <= most


def test_stages_of_a_class_take_time_in_one_of_the_orders(assume, parts, monkeypatch):
    assume(long=costs.Costs().long)
    monkeypatch.setattr(parts["stages"], "RUNS", 1)  # times mean nothing here
    monkeypatch.setattr(parts["stages"], "BEFORE", 1)
    title, *lines = parts["stages"].table().splitlines()
    assert "in no order" in title
    times = {line[:42].strip(): [float(x.replace(",", "")) for x in line[42:].split()] for line in lines}
    assert all(size > 100_000 for size in times.pop("rows"))
    assert set(times) == {*parts["stages"].STAGES, parts["stages"].REST, "together", "torch.sort of int64 keys"}
    idle = {"compute: rows of other metrics"}  # there are none
    assert {name for name, both in times.items() if not max(both)} <= idle
    for order in range(2):
        whole = times["together"][order]
        stages = sum(both[order] for name, both in times.items() if name not in ("together", [*times][-1]))
        assert stages == pytest.approx(whole, abs=0.02)


def test_a_profile_has_all_labels_and_shared_quantities(parts):
    labels = parts["by_measure"].profile("ndcg@10 map mrr", queries=50).splitlines()
    assert [line.split()[0] for line in sorted(labels[3:6])] == ["map", "mrr", "ndcg@10"]
    shared = labels[labels.index("shared quantity: ms") + 1 :]
    assert any("ideal_by_rank(" in line for line in shared)


def test_errors_of_long_sums_are_within_their_bounds(parts):
    for row in parts["scale"].drift(1000):
        assert 0 < float(row["relative error of the mean"]) <= float(row["bound"])
        assert row["queries counted"] == row["queries"]
    errors = [float(row["of 20 trees"]) for row in parts["scale"].orders(16)]
    assert errors[0] < 1e-14 < errors[1] < 1e-5
