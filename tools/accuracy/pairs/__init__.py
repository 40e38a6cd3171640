"""Pairs of recordings: the same workload without quotas and really run under some, to measure predictions by."""
