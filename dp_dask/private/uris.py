"""URIs: where files lie in an object store, in words that hold no secret."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import CoreSchema, core_schema

__all__ = ["Address", "Options", "Uri", "address_of"]

URI = r"^[A-Za-z][A-Za-z0-9+.-]+://"
SCHEMES = {
    "s3": "s3://BUCKET/PREFIX",
    "gs": "gs://BUCKET/PREFIX",
    "abfss": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX",
}
IN_QUERY = ("endpoint", "region", "scheme")
AZURE = ".dfs.core.windows.net"
IDENTITIES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the service account of the machine",
    "abfss": "AZURE_CLIENT_ID and what goes with it, or the managed identity of the machine",
}
ANYWHERE = "credentials come from the environment of those who read, never from the file"


class Uri(str):
    """An address such as ``s3://bucket/prefix``, as it was written; what follows the bucket is the key as it is."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        """Take a text that begins as an address does; what it holds is looked at by ``address_of``, which quotes no secret."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema(pattern=URI))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an object store is reached; public, and all of it optional."""

    endpoint: str = ""  # host:port of a store that is not the provider's own
    region: str = ""
    scheme: str = ""  # http or https
    anonymous: bool = False

    def __post_init__(self) -> None:
        if self.endpoint and not re.fullmatch(r"[A-Za-z0-9.\[\]:_-]+", self.endpoint):
            msg = f"endpoint must be host or host:port, without scheme, user or key; {ANYWHERE}"
            raise ValueError(msg)
        if self.scheme not in ("", "http", "https"):
            msg = f"scheme is {self.scheme!r}; give http or https"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A bucket (or container), a prefix of its keys without slashes at its ends, and how the store is reached."""

    scheme: str
    bucket: str
    account: str  # of Azure
    prefix: str
    options: Options

    @property
    def root(self) -> str:
        """The place as a filesystem of pyarrow names it."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def identity(self) -> str:
        """Where credentials may come from."""
        return IDENTITIES[self.scheme]

    def __str__(self) -> str:
        at = f"@{self.account}{AZURE}" if self.account else ""
        return f"{self.scheme}://{self.bucket}{at}/{self.prefix}".rstrip("/")


def address_of(uri: Uri, options: Options) -> Address:
    """Read an address, options in its query (``?endpoint=..&region=..&scheme=..``) before others.

    Raises ValueError, whose text quotes nothing that may be a secret, for another scheme, a user, a password or a key.
    """
    scheme, _, rest = uri.partition("://")
    if scheme not in SCHEMES:
        msg = f"addresses that begin with {scheme}:// are not known; give a path, or {' or '.join(SCHEMES.values())}"
        raise ValueError(msg)
    rest, has_query, query = rest.partition("?")
    authority, _, prefix = rest.partition("/")
    if has_query:
        options = _with_query(query, options)
    user, has_user, host = authority.rpartition("@")
    account = ""
    if scheme == "abfss" and has_user and host.endswith(AZURE):
        authority, account = user, host.removesuffix(AZURE)
    elif has_user:
        msg = f"the address holds a user or a key before its @; {ANYWHERE}: {IDENTITIES[scheme]}"
        raise ValueError(msg)
    valid = r"[a-z0-9$][a-z0-9-]*" if scheme == "abfss" else r"[A-Za-z0-9][A-Za-z0-9._-]*"
    if not re.fullmatch(valid, authority) or (scheme == "abfss" and not re.fullmatch("[a-z0-9]+", account)):
        msg = f"the address names no bucket, or more than one; give {SCHEMES[scheme]}. {ANYWHERE.capitalize()}"
        raise ValueError(msg)
    prefix = prefix.rstrip("/")
    if "" in prefix.split("/") and prefix:
        msg = "the address has two slashes in a row; give the prefix with one between its parts"
        raise ValueError(msg)
    return Address(scheme=scheme, bucket=authority, account=account, prefix=prefix, options=options)


def _with_query(query: str, options: Options) -> Options:
    told: dict[str, str] = {}
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        if key not in IN_QUERY:
            msg = f"the address has {_name(key)} in its query; known there: {', '.join(IN_QUERY)}. {ANYWHERE.capitalize()}"
            raise ValueError(msg)
        told[key] = value
    return replace(options, **told)  # type: ignore[arg-type]


def _name(key: str) -> str:
    """Return the name of a query's key where it can only be a name."""
    return key if re.fullmatch(r"[a-z_]{1,30}", key) else "another key"
