"""Sensitive: the seal on everything that was computed from records."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

__all__ = ["Sensitive", "reveal"]

T = TypeVar("T")


class Sensitive(Generic[T]):  # noqa: PLW1641  (no equality means no hash)
    """A value computed from records: prints as a mask, and has no equality, order, truth or arithmetic.

    It travels between processes by pickle. Only ``reveal`` opens it, in the files that the boundary test lists.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Sensitive(***)"

    def __eq__(self, other: object) -> NoReturn:
        msg = "a Sensitive value cannot be compared: a comparison would show part of it"
        raise TypeError(msg)

    def __bool__(self) -> NoReturn:
        msg = "a Sensitive value has no truth: it would show part of it"
        raise TypeError(msg)

    def __reduce__(self) -> tuple[type[Sensitive[T]], tuple[T]]:
        return (Sensitive, (self._value,))


def reveal(sealed: Sensitive[T]) -> T:
    """Open the seal; a word to search the code for."""
    return sealed._value  # noqa: SLF001  (the one place)
