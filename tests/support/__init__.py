"""No tests: oracles, queries and layouts, scenarios of workers, and settings that tests share."""
