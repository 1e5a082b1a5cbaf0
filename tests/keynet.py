"""Keys for tests: one authority, and nodes' key directories as they are needed."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from gossamer.net.authority import Authority, create
from gossamer.net.keys import AUTHORITY_CERTIFICATE, CERTIFICATE, KEY


class Fabric:
    def __init__(self, base: Path, name: str = "test") -> None:
        self.base = base / name
        self.authority: Authority = create(self.base, name=name)

    def issue(
        self,
        name: str,
        *,
        publish: Sequence[str] | None = None,
        subscribe: Sequence[str] | None = None,
        days: float = 1,
        renew: bool = False,
    ) -> Path:
        """Without other words, new keys allow every topic. Renewed ones keep their permissions."""
        out = self.base / "nodes" / name
        if not renew:
            publish = ["*"] if publish is None else publish
            subscribe = ["*"] if subscribe is None else subscribe
        self.authority.issue(
            name, out, publish=publish, subscribe=subscribe, days=days, renew=renew
        )
        return out


def client_context(
    keys: Path | None, *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    """What an attacker has: keys or none, and no scruples."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = version
    if keys is not None:
        context.load_cert_chain(keys / CERTIFICATE, keys / KEY)
        context.load_verify_locations(keys / AUTHORITY_CERTIFICATE)
    return context
