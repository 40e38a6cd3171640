"""Helpers of the tests: servers, programs and pages that several modules start or read."""
