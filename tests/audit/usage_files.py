"""Usage tables as files, in the form that the name of the file says."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow import orc

FORMS = ("usage.parquet", "usage.orc", "usage.csv.gz", "usage.jsonl")


def write_table(table: pa.Table, path: Path, group: int = 900) -> Path:
    """Writes Parquet with groups of so many rows, ORC with small stripes, CSV, or JSON lines; .gz is packed."""
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        match path.name.removesuffix(".gz").rpartition(".")[2]:
            case "parquet":
                pq.write_table(table, file, row_group_size=group)
            case "orc":
                orc.write_table(table, file, stripe_size=1024, batch_size=256)
            case "csv":
                pyarrow.csv.write_csv(table, file)
            case _:
                file.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    return path
