"""Takes the README's picture of a report in a browser; `tools/picture.py` draws that of a terminal.

PATH=.venv/bin:$PATH python -m tools.report_picture
"""

import subprocess
import tempfile
from pathlib import Path

from tests.support.browser import Browser

ROOT = Path(__file__).resolve().parents[1]


def photograph_report(picture: Path) -> None:
    """The beginning of the report on the recorded log, as a browser shows it."""
    log = ROOT / "tests" / "data" / "request_log"
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder) / "report.html"
        command = ["kquota", "audit", str(log / "kafka-request.log.gz"), "--broker", "1"]
        command += ["--quotas", str(log / "quotas.json"), "--report", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser.open(page, width=800, height=992)
        picture.write_bytes(browser.screenshot(whole=False))


if __name__ == "__main__":
    photograph_report(ROOT / "docs" / "report.png")
