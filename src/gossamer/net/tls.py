"""TLS over a connection's bytes.

There are no sockets here. Bytes go in and come out, so a connection has its own limits from the
first byte. asyncio's own TLS tells a protocol of a connection only when the handshake is over.
Until then nothing could count it, know its address or cut it off. So ``Connection`` runs the
handshake itself, with the same parts of the standard library (``ssl.MemoryBIO``).
docs/decisions/0015-tls-in-the-connection.md tells more.
"""

from __future__ import annotations

import contextlib
import ssl

# A reply to a peer that does not speak TLS. Its first bytes say that we do.
HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"
_CHUNK = 256 << 10
# OpenSSL's numbers for a bad signature, a lone certificate, and an unknown authority (with and
# without it).
_STRANGE = (7, 18, 19, 20)

_ALERTS = {
    "UNKNOWN_CA": "the peer does not know this node's authority",
    "CERTIFICATE_REQUIRED": "the peer wants a certificate",
    "CERTIFICATE_EXPIRED": "the peer says that this node's certificate has expired",
    "CERTIFICATE_UNKNOWN": "the peer does not take this node's certificate",
    "BAD_CERTIFICATE": "the peer does not take this node's certificate",
    "PROTOCOL_VERSION": "the peer does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS: it has no keys, or is no gossamer node",
    "HTTP_REQUEST": "the peer does not speak TLS: it has no keys, or is no gossamer node",
}


class TlsError(Exception):
    """The peer cannot be talked to. ``reason`` is "no certificate", "wrong certificate" or
    "broken tls".
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Closed(Exception):  # noqa: N818  not an error
    """The peer has said that it sends no more."""


class Session:
    def __init__(self, context: ssl.SSLContext, *, server: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self.established = False

    def start(self) -> None:
        """Makes the first step of the handshake. ``take`` has the bytes to send."""
        self._step()

    def receive(self, data: bytes | memoryview) -> bytes:
        """The peer's bytes in the clear. Raises a TlsError, or Closed."""
        self._incoming.write(data)
        if not self.established:
            self._step()
            if not self.established:
                return b""
        read, parts = self._object.read, []
        try:
            while True:
                part = read(_CHUNK)
                if not part:
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            if not parts:
                raise Closed from None
        except ssl.SSLError as error:
            raise _told(error) from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes) -> bytes:
        """The same bytes, sealed."""
        self._object.write(data)
        return self._outgoing.read()

    def take(self) -> bytes:
        """The bytes that the handshake or an alert has to send."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def end(self) -> bytes:
        """The message that nothing more is sent."""
        # It would wait for the same message from the other side.
        with contextlib.suppress(ssl.SSLError, ValueError, OSError):
            self._object.unwrap()
        return self.take()

    @property
    def certificate(self) -> bytes:
        return self._object.getpeercert(binary_form=True) or b""

    def _step(self) -> None:
        try:
            self._object.do_handshake()
            self.established = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise _told(error) from None


def _told(error: ssl.SSLError) -> TlsError:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        about = (
            "it is of another authority" if error.verify_code in _STRANGE else error.verify_message
        )
        return TlsError("wrong certificate", f"the peer's certificate: {about}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return TlsError("no certificate", "the peer shows no certificate")
    for name, text in _ALERTS.items():
        if reason.endswith(name):
            return TlsError("broken tls", text)
    return TlsError("broken tls", reason.lower().replace("_", " ") or str(error))
