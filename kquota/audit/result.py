"""The result of an audit: the findings, and an account of the data that it looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.batch import Reject, Tally
from kquota.audit.findings import SCHEMA, Findings
from kquota.core.findings.verdicts import QuotaVerdict, Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.tabular import Rows, Tabular, tabulated
from kquota.errors import InputError
from kquota.files import replacing

if TYPE_CHECKING:
    from kquota.audit.ledger.rows import CounterRef
    from kquota.audit.ledger.timeline import Timeline
    from kquota.core.findings.demand import Measured
    from kquota.core.findings.prediction import CounterName, Prediction


_COLUMNS = """broker subject key=key.value unit entity limit verdict reason events throttled_events longest_ms
    muted_share=prediction.muted_share.likely delivered_per_s=prediction.delivered_per_s.likely
    wanted_per_s=prediction.wanted_per_s.likely open_loop_throttle_time_max_ms=throttle_time_max_ms peak_rate
    first_throttled_ms last_throttled_ms"""


@dataclass(frozen=True)
class AuditResult(Tabular):
    """The findings table, and the account of the data."""

    findings: pa.Table
    quality: Tally
    engine: str = ""
    """What ran it: `local` or `spark`."""
    timelines: Mapping[tuple[str, str, str], Timeline] = field(default_factory=dict)
    """The `AuditSettings.timelines` most throttled counters over time, by (broker, key, sensor)."""
    measured: Mapping[CounterRef, Measured] = field(default_factory=dict)
    """The seconds of each counter, where `AuditSettings.question` asks for them."""
    quotas: tuple[QuotaVerdict, ...] = ()
    """What became of each quota that is set: one verdict each."""
    predictions: Mapping[CounterName, Prediction] = field(default_factory=dict)
    """What the clients of each counter will meet; counters of samples and of connections have no prediction."""
    against: AuditResult | None = None
    """The same under the quotas that `AuditSettings.against` names."""

    @property
    def before(self) -> pa.Table | None:
        """The findings under the quotas that `AuditSettings.against` names."""
        return None if self.against is None else self.against.findings

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Some of the records that could not be read."""
        return tuple(self.quality.rejects)

    @property
    def found(self) -> Findings:
        """The findings as values, ranked by the harm to clients (`kquota.core.findings.finding`)."""
        return Findings(self.findings, self.predictions).ranked()

    def table(self) -> Rows:
        """A row for each finding, the most harm first: the numbers of the screen; the replay's are `open_loop_…`."""
        return tabulated(self.found, _COLUMNS)

    @property
    def throttled(self) -> bool:
        """Whether any counter would be throttled."""
        return self._has(Verdict.THROTTLED)

    @property
    def undetermined(self) -> bool:
        """Whether any counter is undetermined, or any quota that is set."""
        of_quotas = any(quota.verdict is Verdict.UNDETERMINED for quota in self.quotas)
        return of_quotas or self._has(Verdict.UNDETERMINED)

    def _has(self, verdict: Verdict) -> bool:
        return bool(pc.any(pc.equal(self.findings.column("verdict"), verdict.value)).as_py())

    def naming(self, clients: int) -> AuditResult:
        """The result with at most that many clients of each counter."""
        place, column = self.findings.schema.get_field_index("clients"), SCHEMA.field("clients")
        cut = pc.list_slice(self.findings.column(place), 0, clients).cast(column.type)
        against = None if self.against is None else self.against.naming(clients)
        return replace(self, findings=self.findings.set_column(place, column, cut), against=against)

    def write(self, folder: Path) -> None:
        """Writes the findings into a folder, which is made: `key=…/findings.parquet` for each quota key.

        The layout is Hive's: Spark and Arrow read the folder as one table with all columns of SCHEMA. What an earlier
        audit wrote there is replaced. Raises InputError when that cannot be.
        """
        import pyarrow.parquet as pq

        keys = pc.unique(self.findings.column("key")).to_pylist() or [QuotaKey.PRODUCER_BYTE_RATE.value]
        try:
            for key in keys:
                findings = self.findings.filter(pc.equal(self.findings.column("key"), key)).drop_columns(["key"])
                place = folder / f"key={key}" / "findings.parquet"
                place.parent.mkdir(parents=True, exist_ok=True)
                with replacing(place) as aside:
                    pq.write_table(findings, aside)
            for stale in folder.glob("key=*/findings.parquet"):
                if stale.parent.name.removeprefix("key=") not in keys:
                    stale.unlink()
                    stale.parent.rmdir()
        except OSError as error:
            raise InputError(f"{folder}: cannot write the findings: {error.strerror or error}") from None
