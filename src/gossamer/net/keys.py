"""A node's keys: its identity, the authority that it trusts, and the list of revoked certificates.

A key directory (made by ``gossamer keys issue``) has

    authority.crt   the certificate of the fabric's authority; a certificate that it has signed
                    makes its holder a member of the fabric
    node.crt        this node's certificate, with its expiry and its permissions
    node.key        its private key, readable by its owner only
    revoked.crl     the signed list of certificates that count no longer; the list with the
                    greatest number is the latest

A node's identity is its key: the 64-bit peer is a hash of the public key, and a connection whose
Hello says otherwise ends. Links are TLS 1.3, both ends show their certificates, and nothing else is
spoken. Permissions are written into the certificate as URIs (``gossamer:publish:weather.*``), which
``openssl x509 -text`` shows.

It needs the package ``cryptography``, which is loaded only if there are keys.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import stat
import time
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from gossamer.machine import Peer
from gossamer.net import private
from gossamer.net.errors import KeysError
from gossamer.node.rights import Identity, Rights
from gossamer.node.wire import REVOKED_MAX

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_CERTIFICATE = "authority.crt"
CERTIFICATE = "node.crt"
KEY = "node.key"
REVOKED = "revoked.crl"
# An authority has this file, and a node does not.
ISSUED = "issued.jsonl"
NODES = "nodes"
SCHEME = "gossamer"
# Keys that are kept open, to judge the next signature sooner.
OPENED_MAX = 4096
GENERATION = re.compile(r"[0-9]{1,18}")


def crypto() -> Any:
    """The package's x509 module. Without it the error says how to get it."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise KeysError(
            f"keys need the package cryptography ({error}): pip install 'gossamer[tls]'"
        ) from None
    return x509


def raw_key(public_key: Any) -> bytes:
    """The 32 bytes of an Ed25519 key; empty for a key of another kind, which signs nothing here."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return public_key.public_bytes_raw() if isinstance(public_key, Ed25519PublicKey) else b""


def peer_of(public_key: Any) -> Peer:
    """64 bits of the hash of a public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    raw = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Peer(int.from_bytes(blake2b(raw, digest_size=8).digest(), "big"))


def permission(kind: str, pattern: str) -> str:
    """A permission as it is written into a certificate."""
    return f"{SCHEME}:{kind}:{quote(pattern, safe='*?[]!-._~')}"


def generation_uri(generation: int) -> str:
    """A certificate's generation as it is written into it, beside the permissions."""
    return f"{SCHEME}:generation:{generation}"


def _generation(uris: list[str]) -> int:
    """The generation that a certificate names; 0 for an old certificate without one."""
    head = f"{SCHEME}:generation:"
    numbers = [uri[len(head) :] for uri in uris if uri.startswith(head)]
    if not numbers:
        return 0
    if len(numbers) > 1 or not GENERATION.fullmatch(numbers[0]):
        raise ValueError(f"a certificate of generation {', '.join(numbers)}")
    return int(numbers[0])


def _permissions(uris: list[str], kind: str) -> tuple[str, ...]:
    head = f"{SCHEME}:{kind}:"
    return tuple(unquote(uri[len(head) :]) for uri in uris if uri.startswith(head))


def read_identity(certificate: x509.Certificate) -> Identity:
    """The contents of a certificate. The caller has checked that the authority signed it."""
    from cryptography.hazmat.primitives.serialization import Encoding

    x509 = crypto()
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return Identity(
        peer_of(certificate.public_key()),
        str(common[0].value) if common else "",
        certificate.serial_number,
        int(certificate.not_valid_before_utc.timestamp()),
        int(certificate.not_valid_after_utc.timestamp()),
        _permissions(uris, "publish"),
        _permissions(uris, "subscribe"),
        certificate.public_bytes(Encoding.DER),
        _generation(uris),
        raw_key(certificate.public_key()),
    )


class Revoked:
    """A list of revoked certificates, with its signature checked."""

    def __init__(self, data: bytes, authority: x509.Certificate) -> None:
        """``data`` is PEM or DER. Raises a KeysError if the authority has not signed it."""
        x509 = crypto()
        if len(data) > REVOKED_MAX:
            raise KeysError(f"a list of {len(data)} bytes; at most {REVOKED_MAX} are allowed")
        try:
            pem = data.lstrip().startswith(b"-----")
            listed = x509.load_pem_x509_crl(data) if pem else x509.load_der_x509_crl(data)
            if listed.issuer != authority.subject or not listed.is_signature_valid(
                authority.public_key()
            ):
                raise KeysError("a list of revoked certificates that the authority has not signed")
            self.number: int = listed.extensions.get_extension_for_class(
                x509.CRLNumber
            ).value.crl_number
            self.serials: frozenset[int] = frozenset(one.serial_number for one in listed)
        except (ValueError, TypeError, x509.ExtensionNotFound) as error:
            raise KeysError(f"not a list of revoked certificates: {error}") from None
        from cryptography.hazmat.primitives.serialization import Encoding

        self.der: bytes = listed.public_bytes(Encoding.DER)


class Keys:
    """A node's key directory, read and checked. Raises a KeysError if it cannot be used."""

    def __init__(self, directory: str | Path, *, any_time: bool = False) -> None:
        """With ``any_time`` an expired or future certificate is accepted, to look at it."""
        self.directory = Path(directory)
        self._x509 = crypto()
        self.revoked: Revoked | None = None
        # The number of lists that were taken.
        self.adopted = 0
        # The problem of the last time that the files were read again.
        self.problem = ""
        self._read()
        if not any_time and not self.valid(self.identity):
            raise KeysError(
                f"the certificate in {self.directory / CERTIFICATE} is "
                f"{self.refusal(self.identity)}; get another one from the holder of the "
                "authority's key: gossamer keys issue AUTHORITY "
                f"{self.identity.name or 'NAME'} --renew"
            )

    def _read(self) -> None:
        directory = self.directory
        self._seen = self._times()
        if not directory.is_dir():
            raise KeysError(
                f"{directory} is not a directory of keys; make one with: gossamer keys issue"
            )
        if (directory / ISSUED).exists() and not (directory / CERTIFICATE).exists():
            where = (
                f"the keys of its nodes are in {directory / NODES}/NAME "
                f"(gossamer keys issue {directory} NAME)"
            )
            raise KeysError(f"{directory} is the authority's directory; {where}")
        try:
            authority = read_certificate(directory / AUTHORITY_CERTIFICATE)
            certificate = read_certificate(directory / CERTIFICATE)
        except (OSError, ValueError) as error:
            raise KeysError(
                f"cannot read the certificates in {directory}: {trouble(error)}; "
                "make them with: gossamer keys issue"
            ) from None
        check_private(directory / KEY)
        try:
            # An x509.Certificate.
            self.authority: Any = authority
            signed = self.prove_certificate(certificate)
        except ValueError as error:
            raise KeysError(f"{directory / CERTIFICATE}: {error}") from None
        if signed is None:
            raise KeysError(
                f"{directory / CERTIFICATE} was not issued by the authority in "
                f"{directory / AUTHORITY_CERTIFICATE}"
            )
        self.identity: Identity = signed
        self._server, self._client = (
            self._context(ssl.PROTOCOL_TLS_SERVER),
            self._context(ssl.PROTOCOL_TLS_CLIENT),
        )
        if (directory / REVOKED).exists():
            try:
                self.adopt((directory / REVOKED).read_bytes(), keep=False)
            except OSError as error:
                raise KeysError(
                    f"cannot read {directory / REVOKED}: {error.strerror or error}"
                ) from None

    def _times(self) -> tuple[tuple[int, int], ...]:
        found = []
        for name in (AUTHORITY_CERTIFICATE, CERTIFICATE, KEY, REVOKED):
            try:
                info = (self.directory / name).stat()
                found.append((info.st_mtime_ns, info.st_ino))
            except OSError:
                found.append((0, 0))
        return tuple(found)

    def reload(self) -> bool:
        """Reads the files again if they have changed, and says whether they had.

        If they cannot be used, everything stays as it was.
        """
        if self._times() == self._seen:
            return False
        before = (self.authority, self.identity, self._server, self._client)
        self.problem = ""
        try:
            self._read()
            if self.identity.peer != before[1].peer:
                raise KeysError(
                    f"{self.directory} has the key of another node now; restart to take it"
                )
        except KeysError as error:
            self.authority, self.identity, self._server, self._client = before
            self.problem = str(error)
        return True

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # A node is known by its key, wherever it runs.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            # Without resumption every connection shows its certificate.
            context.num_tickets = 0
        try:
            context.load_verify_locations(self.directory / AUTHORITY_CERTIFICATE)
            context.load_cert_chain(
                self.directory / CERTIFICATE, self.directory / KEY, password=_no_password
            )
        except (OSError, ValueError) as error:
            raise KeysError(
                f"cannot use the keys in {self.directory}: {error}; "
                "does node.key belong to node.crt?"
            ) from None
        return context

    def context(self, *, server: bool) -> ssl.SSLContext:
        return self._server if server else self._client

    def prove(self, certificate: bytes) -> Identity | None:
        """The holder of a certificate (DER) if the authority has signed it.

        It does not say whether the certificate is valid now.
        """
        try:
            return self.prove_certificate(self._x509.load_der_x509_certificate(certificate))
        except ValueError:
            return None

    def prove_certificate(self, certificate: x509.Certificate) -> Identity | None:
        from cryptography.exceptions import InvalidSignature

        try:
            certificate.verify_directly_issued_by(self.authority)
            return read_identity(certificate)
        except (
            InvalidSignature,
            ValueError,
            TypeError,
            self._x509.DuplicateExtension,
            self._x509.UnsupportedGeneralNameType,
        ):
            return None

    def refusal(self, identity: Identity) -> str:
        """Why a certificate does not count now; "" if it does."""
        now = time.time()
        if now >= identity.not_after:
            return "expired"
        if self.revoked is not None and identity.serial in self.revoked.serials:
            return "revoked"
        if now < identity.not_before:
            return "not valid yet"
        return ""

    def rights(self) -> Rights:
        return Rights(self.identity, self.prove, self.valid, self.over)

    def proof(self, rights: Rights, fabric: str = "") -> Signatures:
        """The signatures of this node, and of the nodes whose keys ``rights`` knows."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path = self.directory / KEY
        try:
            key = load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise KeysError(f"cannot open {path}: {error}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise KeysError(
                f"{path} is no Ed25519 key, so this node cannot sign; make another one with: "
                "gossamer keys issue"
            )
        return Signatures(key, rights, fabric)

    def valid(self, identity: Identity) -> bool:
        return not self.refusal(identity)

    def over(self, identity: Identity) -> bool:
        """Whether a certificate will never count again. One that is not valid yet will."""
        return self.refusal(identity) in ("expired", "revoked")

    def adopt(self, data: bytes, *, keep: bool = True) -> bool:
        """Takes a list of revoked certificates if it is later than ours, and keeps it on disk.

        Returns whether it was later.
        """
        revoked = Revoked(data, self.authority)
        if self.revoked is not None and revoked.number <= self.revoked.number:
            return False
        self.revoked = revoked
        self.adopted += 1
        if keep:
            # If the directory cannot be written, the neighbours send the list again.
            with contextlib.suppress(OSError):
                write_public(self.directory / REVOKED, pem_list(revoked.der))
                self._seen = self._times()
        return True


class Signatures:
    """Ed25519 signatures, made with this node's key and judged by the keys of the others.

    The name of the fabric is signed too. So nothing that a node has signed in one fabric counts in
    another one of the same authority.
    """

    is_on = True

    def __init__(self, key: Any, rights: Rights, fabric: str) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self._sign, self._rights = key.sign, rights
        self._open, self._invalid = Ed25519PublicKey.from_public_bytes, InvalidSignature
        self._fabric = blake2b(fabric.encode(), digest_size=16).digest()
        # Keys that were opened. The one that was used longest ago comes first.
        self._opened: OrderedDict[bytes, Any] = OrderedDict()

    def sign(self, kind: bytes, content: bytes) -> bytes:
        signature: bytes = self._sign(self._framed(kind, content))
        return signature

    def proves(self, peer: Peer, kind: bytes, content: bytes, signature: bytes) -> bool | None:
        raw = self._rights.key(peer)
        if raw is None:
            return None
        if not raw:
            return False
        key = self._opened.pop(raw, None)
        try:
            if key is None:
                key = self._open(raw)
            self._opened[raw] = key
            if len(self._opened) > OPENED_MAX:
                del self._opened[next(iter(self._opened))]
            key.verify(signature, self._framed(kind, content))
        except (self._invalid, ValueError):
            return False
        return True

    def _framed(self, kind: bytes, content: bytes) -> bytes:
        """The bytes that are signed. No two statements have the same ones."""
        return b"gossamer\0" + kind + b"\0" + self._fabric + content


def _no_password() -> str:
    raise ValueError("node.key is encrypted; a node's key has no passphrase")


def pem_list(der: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = crypto().load_der_x509_crl(der).public_bytes(Encoding.PEM)
    return data


def trouble(error: Exception) -> str:
    """The text of an error, with the file's name and the system's own words."""
    return (
        f"{error.filename}: {error.strerror}"
        if isinstance(error, OSError) and error.strerror
        else str(error)
    )


def read_certificate(path: Path) -> Any:
    """An x509.Certificate. Raises an OSError, or a ValueError with the file's name."""
    try:
        return crypto().load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path} is not a certificate") from None


def check_private(path: Path) -> None:
    """Refuses a private key that others can read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise KeysError(
            f"cannot read {path}: {error.strerror or error}; make it with: gossamer keys issue"
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeysError(f"{path} can be read by others, so it is no secret: chmod 600 {path}")


def write_private(path: Path, data: bytes) -> None:
    """Writes a new file that only its owner can read from the beginning. It never overwrites."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_public(path: Path, data: bytes) -> None:
    """Writes a file that is no secret, whole or not at all. Only its owner can read it all the
    same.
    """
    private.write(path, data)
