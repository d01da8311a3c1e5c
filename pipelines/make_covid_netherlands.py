"""Make pipelines/data/covid_netherlands: cumulative COVID-19 cases of 18 days, and the same as one row a patient.

Run: python pipelines/make_covid_netherlands.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent / "data" / "covid_netherlands"
CUMULATIVE = (1, 7, 10, 24, 38, 82, 128, 188, 265, 321, 382, 503, 614, 804, 959, 1135, 1413, 1705)


def main() -> None:
    """Write the days with their counts, and the patients with the day that each was reported on."""
    y = np.array(CUMULATIVE)
    day = np.arange(len(y))
    FOLDER.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"day": day, "y": y}), FOLDER / "days.parquet", compression="zstd")
    patients = np.repeat(day, np.diff(y, prepend=0))
    pq.write_table(pa.table({"day": patients}), FOLDER / "patients.parquet", compression="zstd")


if __name__ == "__main__":
    main()
