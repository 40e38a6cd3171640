"""The table of releases is what brokers of these releases do."""

import json

import pytest

from tools.releases import FOUND, RELEASES, ended


@pytest.mark.server
@pytest.mark.parametrize("release", RELEASES)
def test_each_command_ends_as_the_table_says(release: str) -> None:
    assert ended(release) == json.loads(FOUND.read_text(encoding="utf-8"))[release]
