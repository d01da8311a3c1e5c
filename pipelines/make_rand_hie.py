"""Make pipelines/data/rand_hie from the copy of the RAND Health Insurance Experiment that statsmodels ships.

Run: pip install statsmodels && python pipelines/make_rand_hie.py
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from statsmodels.datasets import randhie

FOLDER = Path(__file__).parent / "data" / "rand_hie"
ROWS_PER_GROUP = 2_500
FILES_PER_PLAN = 2


def main() -> None:
    """Write two files for each kind of insurance plan, in the order of the source."""
    data = randhie.load_pandas().data.reset_index(names="row")
    for deductible, part in data.groupby("idp"):
        folder = FOLDER / f"individual_deductible={int(deductible)}"
        folder.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_pandas(part.drop(columns=["row", "idp"]), preserve_index=False)
        size = -(-len(table) // FILES_PER_PLAN)
        for number in range(FILES_PER_PLAN):
            piece = table.slice(number * size, size).replace_schema_metadata(None)
            pq.write_table(piece, folder / f"part-{number}.parquet", row_group_size=ROWS_PER_GROUP, compression="zstd")


if __name__ == "__main__":
    main()
