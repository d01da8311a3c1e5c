"""Hardened: what a cluster must be before records are read on it: nothing on its disks, in its logs or open to others."""
