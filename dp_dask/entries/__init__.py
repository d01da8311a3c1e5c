"""Entries: what stands in a pipeline file, each kind of entry read into values by a file of its own; all faults at once."""
