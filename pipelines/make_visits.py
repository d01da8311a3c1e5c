"""Make pipelines/data/visits: simulated visits to doctors, several of most persons.

Run: python pipelines/make_visits.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent / "data" / "visits"
PERSONS, FILES, SEED = 3_000, 4, 2026
MEAN_VISITS, MEAN_MINUTES = 4, 12.0
PLACES, SHARES = ("practice", "phone", "home"), (0.6, 0.3, 0.1)
HABIT = 0.5  # how often a visit is where the person's first one was


def main() -> None:
    """Draw persons with a geometric number of visits, each where the first one was or anywhere; shuffle the visits over files."""
    rng = np.random.default_rng(SEED)
    person = np.repeat(np.arange(PERSONS), rng.geometric(1 / MEAN_VISITS, PERSONS))
    usual = rng.choice(len(PLACES), PERSONS, p=SHARES)[person]
    place = np.where(rng.random(len(person)) < HABIT, usual, rng.choice(len(PLACES), len(person), p=SHARES))
    minutes = np.ceil(10 * rng.exponential(MEAN_MINUTES, len(person))) / 10
    names = [f"P{number:05}" for number in rng.permutation(100_000)[:PERSONS]]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(rng.permutation(len(person)), FILES)):
        columns = {
            "person": [names[i] for i in person[part]],
            "minutes": minutes[part],
            "place": [PLACES[i] for i in place[part]],
        }
        pq.write_table(pa.table(columns), FOLDER / f"part-{number}.parquet", compression="zstd")


if __name__ == "__main__":
    main()
