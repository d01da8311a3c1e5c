"""Beside the data: the only code that touches records. Nothing here logs, prints or writes."""
