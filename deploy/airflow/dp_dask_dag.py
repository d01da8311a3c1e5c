"""A nightly run as a DAG of Apache Airflow: one call of the command line, which does all the rest.

No retries and no catch-up: a repeat of a slot is free by itself, and one that failed is looked at first (RUNBOOK.md).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

FILE = "/etc/dp-dask/people.yaml"

with DAG(
    dag_id="dp_dask_people",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0},
) as dag:
    BashOperator(
        task_id="run",
        bash_command=f'umask 077 && dp-dask run {FILE} --slot "{{{{ ts }}}}"',
        execution_timeout=timedelta(hours=6),
    )
