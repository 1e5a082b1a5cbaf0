"""A node's keys: its identity, the authority that it trusts, and the list of revoked certificates.

A key directory (made by ``gossamer keys issue``) has

    authority.crt   the certificate of the fabric's authority; a certificate that it has signed
                    makes its holder a member of the fabric. While the authority changes there are
                    two of them in this file, and a certificate of either one counts
    node.crt        this node's certificate, with its expiry and its permissions
    node.key        its private key, readable by its owner only
    revoked.crl     the signed list of certificates that count no longer, one of each authority;
                    the list with the greatest number is the latest

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
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from msgspec import structs

from gossamer.machine import Peer
from gossamer.net import private
from gossamer.net.errors import KeysError
from gossamer.node.rights import Identity, Rights
from gossamer.node.wire import AUTHORITIES_MAX, REVOKED_MAX

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_CERTIFICATE = "authority.crt"
CERTIFICATE = "node.crt"
KEY = "node.key"
REVOKED = "revoked.crl"
PUBLIC = (AUTHORITY_CERTIFICATE, CERTIFICATE, REVOKED)
# An authority has this file, and a node does not.
ISSUED = "issued.jsonl"
NODES = "nodes"
SCHEME = "gossamer"
# Keys that are kept open, to judge the next signature sooner.
OPENED_MAX = 4096
GENERATION = re.compile(r"[0-9]{1,18}")
_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----\s*", re.S)


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


def authority_mark(certificate: x509.Certificate) -> int:
    """64 bits of the hash of an authority's key. Nodes name their authorities by it."""
    return int.from_bytes(blake2b(raw_key(certificate.public_key()), digest_size=8).digest(), "big")


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

    def __init__(self, data: bytes, authorities: Iterable[x509.Certificate]) -> None:
        """``data`` is PEM or DER. Raises a KeysError if none of the authorities has signed it."""
        x509 = crypto()
        if len(data) > REVOKED_MAX:
            raise KeysError(f"a list of {len(data)} bytes; at most {REVOKED_MAX} are allowed")
        try:
            pem = data.lstrip().startswith(b"-----")
            listed = x509.load_pem_x509_crl(data) if pem else x509.load_der_x509_crl(data)
            signer = next(
                (
                    one
                    for one in authorities
                    if listed.issuer == one.subject and listed.is_signature_valid(one.public_key())
                ),
                None,
            )
            if signer is None:
                raise KeysError("a list of revoked certificates that the authority has not signed")
            self.authority = authority_mark(signer)
            # In seconds of Unix time.
            self.signed_at = listed.last_update_utc.timestamp()
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
        # The certificates of the authorities, by mark.
        self.authorities: dict[int, x509.Certificate] = {}
        # The latest list of each authority, by mark.
        self.lists: dict[int, Revoked] = {}
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
            authorities = read_authorities(directory / AUTHORITY_CERTIFICATE)
            certificate = read_certificate(directory / CERTIFICATE)
        except (OSError, ValueError) as error:
            raise KeysError(
                f"cannot read the certificates in {directory}: {trouble(error)}; "
                "make them with: gossamer keys issue"
            ) from None
        check_private(directory / KEY)
        # A user who can write one of these chooses whom this node trusts.
        for path in (directory, *(directory / name for name in PUBLIC)):
            check_writers(path)
        try:
            self.authorities = {authority_mark(one): one for one in authorities}
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
        self.lists = {mark: one for mark, one in self.lists.items() if mark in self.authorities}
        try:
            for listed in read_lists(directory / REVOKED):
                # A list of an authority that counts no longer may still be there.
                if any(is_from(listed, one) for one in authorities):
                    self.adopt(listed, keep=False)
        except OSError as error:
            raise KeysError(
                f"cannot read {directory / REVOKED}: {error.strerror or error}"
            ) from None

    def _times(self) -> dict[str, tuple[int, int]]:
        return {
            name: self._time(name) for name in (AUTHORITY_CERTIFICATE, CERTIFICATE, KEY, REVOKED)
        }

    def _time(self, name: str) -> tuple[int, int]:
        try:
            info = (self.directory / name).stat()
        except OSError:
            return (0, 0)
        return (info.st_mtime_ns, info.st_ino)

    def reload(self) -> bool:
        """Reads the files again if they have changed, and says whether they had.

        If they cannot be used, everything stays as it was.
        """
        if self._times() == self._seen:
            return False
        before = (self.authorities, self.identity, self._server, self._client, self.lists)
        self.problem = ""
        try:
            self._read()
            if self.identity.peer != before[1].peer:
                raise KeysError(
                    f"{self.directory} has the key of another node now; restart to take it"
                )
        except KeysError as error:
            self.authorities, self.identity, self._server, self._client, self.lists = before
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

        for mark, authority in self.authorities.items():
            try:
                certificate.verify_directly_issued_by(authority)
                return structs.replace(read_identity(certificate), authority=mark)
            except (
                InvalidSignature,
                ValueError,
                TypeError,
                self._x509.DuplicateExtension,
                self._x509.UnsupportedGeneralNameType,
            ):
                continue
        return None

    @property
    def revoked(self) -> int:
        """The number of certificates on the lists."""
        return sum(len(one.serials) for one in self.lists.values())

    @property
    def listed_at(self) -> float | None:
        """When the oldest of the lists was signed, in Unix time; None without lists."""
        return min((one.signed_at for one in self.lists.values()), default=None)

    def is_stale(self, identity: Identity, seconds: float) -> bool:
        """Whether the list of a certificate's authority was signed longer ago, or is missing."""
        listed = self.lists.get(identity.authority)
        return listed is None or _clock() - listed.signed_at > seconds

    def refusal(self, identity: Identity) -> str:
        """Why a certificate does not count now; "" if it does."""
        now = _clock()
        if now >= identity.not_after:
            return "expired"
        if identity.authority not in self.authorities:
            return "of another authority"
        if any(identity.serial in listed.serials for listed in self.lists.values()):
            return "revoked"
        if now < identity.not_before:
            return "not valid yet"
        return ""

    def rights(self) -> Rights:
        return Rights(self.identity, self.prove, self.valid, self.over, self.is_revoked)

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
        return self.refusal(identity) in ("expired", "revoked", "of another authority")

    def is_revoked(self, identity: Identity) -> bool:
        return self.refusal(identity) == "revoked"

    def adopt(self, data: bytes, *, keep: bool = True) -> bool:
        """Takes a list of revoked certificates if it is later than ours, and keeps it on disk.

        Returns whether it was later.
        """
        revoked = Revoked(data, self.authorities.values())
        known = self.lists.get(revoked.authority)
        if known is not None and revoked.number <= known.number:
            return False
        self.lists = {**self.lists, revoked.authority: revoked}
        self.adopted += 1
        if keep:
            # If the directory cannot be written, the neighbours send the list again.
            with contextlib.suppress(OSError):
                data = b"".join(pem_list(one.der) for one in self.lists.values())
                write_public(self.directory / REVOKED, data)
                # The other files may have changed since they were read.
                self._seen[REVOKED] = self._time(REVOKED)
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


def _clock() -> float:
    """The time of day, by which certificates and lists are valid."""
    return time.time()


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


def read_authorities(path: Path) -> list[Any]:
    """The certificates of the authorities; of two, the one that issues comes first.

    Raises an OSError, or a ValueError with the file's name.
    """
    try:
        found: list[Any] = crypto().load_pem_x509_certificates(path.read_bytes())
    except ValueError:
        raise ValueError(f"{path} is not a certificate") from None
    if len(found) > AUTHORITIES_MAX:
        raise ValueError(
            f"{path} has {len(found)} certificates; at most {AUTHORITIES_MAX} authorities count "
            "at a time"
        )
    return found


def read_lists(path: Path) -> list[bytes]:
    """The lists of revoked certificates in a file. Raises an OSError."""
    if not path.exists():
        return []
    data = path.read_bytes()
    # Anything else in the file is no list, and an error says so.
    return _LIST.findall(data) if _LIST.sub(b"", data).strip() == b"" else [data]


def is_from(listed: bytes, authority: Any) -> bool:
    """Whether a list names this authority. A list that cannot be read names all of them."""
    x509 = crypto()
    key = x509.SubjectKeyIdentifier.from_public_key(authority.public_key()).digest
    try:
        found = x509.load_pem_x509_crl(listed).extensions
        named = found.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except (ValueError, x509.ExtensionNotFound):
        return True
    return bool(named == key)


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


def check_writers(path: Path) -> None:
    """Refuses a file or folder of keys that other users can write, if it is there."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise KeysError(f"cannot read {path}: {error.strerror or error}") from None
    if info.st_uid not in (0, os.geteuid()):
        raise KeysError(
            f"{path} belongs to another user (uid {info.st_uid}), who could change the nodes that "
            "this one trusts; make it your own: chown"
        )
    # In a folder with the sticky bit, others cannot replace the files that are there.
    is_shared = stat.S_ISDIR(info.st_mode) and bool(info.st_mode & stat.S_ISVTX)
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_shared:
        raise KeysError(
            f"others can write {path}, and so change the nodes that this one trusts: "
            f"chmod go-w {path}"
        )


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
