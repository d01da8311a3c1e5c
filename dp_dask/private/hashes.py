"""Hashes: of values and texts, with a key, in 64 bits: for a rule that must treat all values alike, and no protection in itself.

Whole numbers are mixed by the finaliser of SplitMix64 (Steele, Lea & Flood 2014), a permutation of 64 bits; texts by BLAKE2b.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["STEP", "hash_of", "key_of", "mixed"]

Hashes = NDArray[np.uint64]
STEP = np.uint64(0x9E3779B97F4A7C15)  # odd: its multiples are all different
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SIZE = 8  # bytes


def key_of(name: str, purpose: str) -> int:
    """Return a key that depends on a public name, and on what it is for."""
    return int.from_bytes(blake2b(name.encode(), digest_size=SIZE, person=purpose.encode()).digest())


def mixed(numbers: Hashes) -> Hashes:
    """Permute 64-bit numbers so that each bit of one depends on all."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * SECOND
    return numbers ^ (numbers >> np.uint64(31))


def hash_of(array: pa.Array, key: int) -> Hashes:
    """Hash each slot of int64 without nulls, or of binary, where a null is a value of its own."""
    if pa.types.is_int64(array.type):
        return mixed(array.to_numpy(zero_copy_only=True).view(np.uint64) ^ np.uint64(key))
    encoded = array.dictionary_encode()
    secret = key.to_bytes(SIZE)
    made = [int.from_bytes(blake2b(text, digest_size=SIZE, key=secret).digest()) for text in encoded.dictionary.to_pylist()]
    of_null = int(mixed(np.array([key], dtype=np.uint64))[0])
    codes = encoded.indices.fill_null(len(made))
    return np.array([*made, of_null], dtype=np.uint64)[np.asarray(codes)]
