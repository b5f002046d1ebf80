"""Files, data frames and dictionaries of judgments and runs, and their join to a ranking."""
