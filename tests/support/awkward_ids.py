"""Ids that readers tend to change."""

IDS = ["007", "1e5", "NA", "null", "nan", "#3", "é" * 9, "日本", "\u00a0", "x" * 300, "-", "1.0"]
