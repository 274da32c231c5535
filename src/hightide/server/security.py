"""Who may ask: API keys, hosts and origins."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hightide.errors import InputError
from hightide.server.api_errors import ApiError

KEY_VARIABLE = "HIGHTIDE_API_KEY"
OPEN_PATHS = ("/", "/health", "/ready")  # without a key, as the page's files are


@dataclass(frozen=True, repr=False)
class Security:
    """`repr` shows no key."""

    keys: tuple[bytes, ...] = ()
    origins: tuple[str, ...] = ()  # pages of other sites that may ask; "*": all of them
    hosts: tuple[str, ...] = ()  # names that a request may call the server by; () for any

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """ApiError for a request that may not be."""
        self._check_host(headers)
        self._check_origin(headers)
        is_open = path in OPEN_PATHS or path.startswith("/page/")
        if self.keys and not is_open and not self._has_key(headers):
            raise ApiError(
                401,
                "this server needs an API key: send the header Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("utf-8", "replace") if scheme.lower() == "bearer" else b""
        # Every key is compared in full: the time says nothing of where they differ.
        equal = [hmac.compare_digest(sent, key) for key in self.keys]
        return any(equal)

    def _check_host(self, headers: Mapping[str, str]) -> None:
        """A page of a stranger can give its own name the address 127.0.0.1, and so ask this server."""
        if self.hosts and (host := host_name(headers.get("host", ""))) not in self.hosts:
            raise ApiError(403, f"this server does not answer to the name {host!r}")

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Browsers send even what they then do not let a page read."""
        origin = headers.get("origin")
        if origin is None or "*" in self.origins or origin in self.origins:
            return
        if urlsplit(origin).netloc != headers.get("host"):
            raise ApiError(403, "pages of this origin may not ask this server; allow them with --cors ORIGIN")

    def cors_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """For a page of another site that may ask."""
        origin = headers.get("origin")
        if origin is None or not ("*" in self.origins or origin in self.origins):
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
            "Access-Control-Allow-Headers": headers.get(
                "access-control-request-headers", "authorization, content-type"
            ),
            "Vary": "Origin",
        }


def read_keys(path: Path | None) -> tuple[bytes, ...]:
    """One key per line of the file; or the one in the environment."""
    text = os.environ.get(KEY_VARIABLE, "") if path is None else _read(path)
    keys = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    if path is not None and not keys:
        raise InputError(f"{path} has no API key; write one per line")
    return keys


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file with API keys") from None


def make_security(host: str, keys: tuple[bytes, ...], origins: Sequence[str]) -> Security:
    """InputError for a server that anybody in the network could use."""
    local = is_local(host)
    if not local and not keys:
        raise InputError(
            f"with --host {host}, anybody who reaches this machine could use the server:"
            f" give an API key with --api-key-file or {KEY_VARIABLE}"
        )
    names = () if keys or not local else ("localhost", "127.0.0.1", "::1", host)
    return Security(keys, tuple(origins), names)


def is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """Of a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header
