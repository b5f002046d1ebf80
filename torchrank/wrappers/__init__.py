"""Metrics and functions around metrics: the influence of ties, of unjudged candidates and of the choice of queries."""
