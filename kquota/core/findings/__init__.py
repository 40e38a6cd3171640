"""Findings: what became of each quota, what another quota would change, and which value to recommend."""
