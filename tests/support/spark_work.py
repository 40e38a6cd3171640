"""Work for Spark whose classes are archived: see `tests.support.archives`."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches."""
    return batches


if __name__ == "__main__":
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(100).selectExpr("id % 3 AS part", "id")
    rows.mapInArrow(unchanged, rows.schema).groupBy("part").count().collect()
    spark.stop()
