"""The fabric's authority, which makes, issues and revokes keys. No node runs any of this.

An authority's directory has ``authority.key`` (keep it off the machines that run nodes),
``authority.crt``, ``revoked.crl``, and ``issued.jsonl``. The last one has a line for each
certificate, so that it can be revoked by name. Keys are Ed25519.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gossamer.net import private
from gossamer.net.errors import KeysError
from gossamer.net.keys import (
    AUTHORITY_CERTIFICATE,
    CERTIFICATE,
    ISSUED,
    KEY,
    REVOKED,
    Revoked,
    check_private,
    crypto,
    generation_uri,
    is_from,
    peer_of,
    permission,
    raw_key,
    read_authorities,
    read_identity,
    read_lists,
    trouble,
    write_private,
    write_public,
)
from gossamer.node.rights import Identity
from gossamer.overlay.interest.record import CERTIFICATE_MAX
from gossamer.trace import hex_peer

AUTHORITY_KEY = "authority.key"
AUTHORITY_DAYS = 3650
NODE_DAYS = 365
DAYS_MAX = 36_500
# The clocks of machines differ.
EARLY = dt.timedelta(hours=1)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Issued(Struct, frozen=True):
    """A line of the authority's book."""

    name: str
    peer: str
    # In hexadecimal.
    serial: str
    not_before: int
    not_after: int
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    # Older books have no generations and no keys.
    generation: int = 0
    # The public key, in hexadecimal.
    key: str = ""


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _named(name: str) -> Any:
    x509 = crypto()
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def _usage(*allowed: str) -> Any:
    """The extension that allows these uses of a key, and no others."""
    return crypto().KeyUsage(**{usage: usage in allowed for usage in _USAGES})


def _pem_key(key: Any, passphrase: bytes | None = None) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    how = s.BestAvailableEncryption(passphrase) if passphrase else s.NoEncryption()
    data: bytes = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, how)
    return data


def _new_key() -> Any:
    crypto()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.generate()


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = certificate.public_bytes(Encoding.PEM)
    return data


def create(
    directory: Path,
    *,
    name: str = "gossamer",
    days: int = AUTHORITY_DAYS,
    passphrase: bytes | None = None,
    after: Path | None = None,
) -> Authority:
    """Makes the authority of a fabric. Raises a KeysError if there is one already.

    With ``after`` it follows another authority, whose directory this is. It knows the keys and the
    permissions that the other one has issued, and what the other one has revoked. Nodes trust both
    until ``retire``.
    """
    x509 = crypto()
    _check_name(name)
    if (directory / AUTHORITY_KEY).exists():
        raise KeysError(
            f"{directory} has an authority already; choose another directory "
            "(without the old key, every certificate must be issued anew)"
        )
    before = Authority(after, sign=False) if after is not None else None
    key = _new_key()
    now = _now()
    usage = _usage("key_cert_sign", "crl_sign")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + dt.timedelta(days=_days(days)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
    _directory(directory)
    write_private(directory / AUTHORITY_KEY, _pem_key(key, passphrase))
    trusted = [certificate, *([before.certificate] if before is not None else [])]
    write_public(directory / AUTHORITY_CERTIFICATE, b"".join(map(_pem, trusted)))
    write_public(directory / ISSUED, b"")
    authority = Authority(directory, passphrase)
    if before is not None:
        authority._write_book(before.issued)
    authority.sign_list(before.listed if before is not None else [])
    return authority


class Authority:
    """An authority's directory, opened.

    With ``sign`` its key is opened too. Issuing and revoking need the key, and looking does not.
    """

    def __init__(
        self, directory: Path, passphrase: bytes | None = None, *, sign: bool = True
    ) -> None:
        self.directory = directory
        try:
            # While the authority changes, the certificate of the previous one follows.
            self.trusted = read_authorities(directory / AUTHORITY_CERTIFICATE)
            self.certificate = self.trusted[0]
            self.issued = msgspec.json.Decoder(Issued).decode_lines(
                (directory / ISSUED).read_bytes()
            )
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise KeysError(
                f"{directory} is no authority's directory ({trouble(error)}); "
                "make one with: gossamer keys init DIR"
            ) from None
        self._key = self._open(passphrase) if sign else None
        self.revoked: Revoked | None = None
        if (directory / REVOKED).exists():
            self.revoked = Revoked((directory / REVOKED).read_bytes(), [self.certificate])

    def _open(self, passphrase: bytes | None) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path = self.directory / AUTHORITY_KEY
        check_private(path)
        try:
            return load_pem_private_key(path.read_bytes(), passphrase)
        except TypeError:
            remedy = (
                "not encrypted: leave the passphrase out"
                if passphrase
                else "encrypted: give --passphrase-file FILE"
            )
            raise KeysError(f"{path} is {remedy}") from None
        except ValueError as error:
            raise KeysError(f"cannot open {path}: {error}; is the passphrase right?") from None

    @property
    def name(self) -> str:
        return str(
            self.certificate.subject.get_attributes_for_oid(crypto().NameOID.COMMON_NAME)[0].value
        )

    def issue(
        self,
        name: str,
        out: Path,
        *,
        publish: Sequence[str] | None = None,
        subscribe: Sequence[str] | None = None,
        days: float = NODE_DAYS,
        renew: bool = False,
        request: bytes | None = None,
    ) -> Identity:
        """Makes a key directory for a node.

        With ``renew`` the key that is there gets a new certificate, so the node keeps its identity.
        ``request`` is a signing request (PEM) for a key that was made on another machine and stays
        there. Then no private key is written. For ``publish`` and ``subscribe``, None stands for
        the permissions in the key's last certificate, or for nothing if the key has none.
        """
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        _check_name(name)
        _check_patterns("publish", publish)
        _check_patterns("subscribe", subscribe)
        if renew:
            check_private(out / KEY)
            public = load_pem_private_key((out / KEY).read_bytes(), None).public_key()
        elif (out / CERTIFICATE).exists() or (out / KEY).exists():
            raise KeysError(
                f"{out} has keys already; "
                "issue elsewhere (--out), or give them more time with --renew"
            )
        elif request is not None:
            public = _requested(request)
        else:
            key = _new_key()
            public = key.public_key()
        last = self._last(public, name)
        if publish is None:
            publish = last.publish if last is not None else ()
        if subscribe is None:
            subscribe = last.subscribe if last is not None else ()
        generation = self._next_generation(public)
        certificate = self._sign(name, public, publish, subscribe, days, generation)
        identity = read_identity(certificate)
        if len(identity.certificate) > CERTIFICATE_MAX:
            raise KeysError(
                f"the certificate would have {len(identity.certificate)} bytes; every node "
                f"keeps it, so at most {CERTIFICATE_MAX} "
                "are allowed: use fewer patterns, or shorter ones"
            )
        # The book comes first: a certificate that is not in the book cannot be revoked by name.
        self._write_book([*self.issued, _line(identity)])
        _directory(out)
        if not renew and request is None:
            write_private(out / KEY, _pem_key(key))
        write_public(out / AUTHORITY_CERTIFICATE, b"".join(map(_pem, self.trusted)))
        write_public(out / CERTIFICATE, _pem(certificate))
        self.hand_out([out])
        return identity

    def _last(self, public: Any, name: str) -> Issued | None:
        """The last certificate of a key.

        Raises a KeysError if it was revoked. Certificates are no secret, so a thief of the key
        could use the next certificate as well. It also raises one if another key has this id: the
        certificate would make its holder the other node, with that node's permissions.
        """
        peer, key = hex_peer(peer_of(public)), raw_key(public).hex()
        last = next((one for one in reversed(self.issued) if one.peer == peer), None)
        if last is not None and last.key not in ("", key):
            raise KeysError(
                f"the id {peer} of this key belongs to another key, that of {last.name!r}, so "
                "nothing was issued; make another key"
            )
        if (
            last is not None
            and self.revoked is not None
            and int(last.serial, 16) in self.revoked.serials
        ):
            raise KeysError(
                f"the key of {last.name!r} was revoked; make a new one: "
                f"gossamer keys issue {self.directory} {name} --out DIR"
            )
        return last

    def _next_generation(self, public: Any) -> int:
        """A number above those of all certificates that this key was ever given.

        It is not just counted up. An authority that is restored from an old copy has forgotten the
        last numbers, and nodes would ignore a certificate with a smaller number than theirs.
        """
        peer = hex_peer(peer_of(public))
        last = max((one.generation for one in self.issued if one.peer == peer), default=0)
        return max(last + 1, int(_now().timestamp()))

    def _sign(
        self,
        name: str,
        public: Any,
        publish: Iterable[str],
        subscribe: Iterable[str],
        days: float,
        generation: int,
    ) -> Any:
        x509 = crypto()
        now = _now()
        until = min(now + dt.timedelta(days=_days(days)), self.certificate.not_valid_after_utc)
        uris = [
            generation_uri(generation),
            *(permission("publish", one) for one in publish),
            *(permission("subscribe", one) for one in subscribe),
        ]
        usage = _usage("digital_signature")
        both = x509.ExtendedKeyUsage(
            [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.certificate.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(self.certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, until) - EARLY)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(both, critical=False)
            .add_extension(above, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, None)

    def find(self, wanted: str) -> list[Issued]:
        """The certificates of a name, a node's id or a serial number.

        Ids and serial numbers are hexadecimal.
        """
        found = [one for one in self.issued if wanted in (one.name, one.peer, one.serial)]
        if not found:
            raise KeysError(
                f"nothing was issued here for {wanted!r}; see: gossamer keys show {self.directory}"
            )
        return found

    def revoke(self, wanted: str) -> list[Issued]:
        """Puts a node's certificates on the list of revoked certificates, and returns the new
        ones.
        """
        serials = self.revoked.serials if self.revoked is not None else frozenset()
        now = _now().timestamp()
        fresh = [
            one
            for one in self.find(wanted)
            if int(one.serial, 16) not in serials and one.not_after > now
        ]
        if fresh:
            self.sign_list([*self.listed, *fresh])
        return fresh

    @property
    def listed(self) -> list[Issued]:
        """The certificates on the list. One that has expired need not be there any longer."""
        serials = self.revoked.serials if self.revoked is not None else frozenset()
        now = _now().timestamp()
        return [
            one for one in self.issued if int(one.serial, 16) in serials and one.not_after > now
        ]

    def retire(self) -> int:
        """Ends the change of the authority: from now on this one alone is trusted.

        Returns the number of authorities that were trusted beside it.
        """
        others = len(self.trusted) - 1
        self.trusted = self.trusted[:1]
        write_public(self.directory / AUTHORITY_CERTIFICATE, _pem(self.certificate))
        return others

    def sign_list(self, listed: list[Issued]) -> None:
        x509 = crypto()
        now = _now()
        before = self.revoked.number if self.revoked is not None else 0
        # It is not just counted up: an authority that is restored from an old copy must not sign a
        # number twice.
        number = max(before + 1, int(now.timestamp()))
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now)
            .next_update(self.certificate.not_valid_after_utc)
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.certificate.public_key()),
                critical=False,
            )
        )
        for one in listed:
            entry = (
                x509.RevokedCertificateBuilder()
                .serial_number(int(one.serial, 16))
                .revocation_date(now)
                .build()
            )
            builder = builder.add_revoked_certificate(entry)
        write_public(self.directory / REVOKED, _pem(builder.sign(self._key, None)))
        self.revoked = Revoked((self.directory / REVOKED).read_bytes(), [self.certificate])

    def hand_out(self, directories: Iterable[Path]) -> None:
        """Puts the list of revoked certificates into key directories.

        A node that runs there takes the list and passes it on. The list of another authority that
        is there stays, because both count while the authority changes.
        """
        data = (self.directory / REVOKED).read_bytes()
        for directory in directories:
            if not (directory / AUTHORITY_CERTIFICATE).exists():
                raise KeysError(
                    f"{directory} has no keys; a node's key directory is expected (--to DIR)"
                )
            there = read_lists(directory / REVOKED)
            others = [one for one in there if not is_from(one, self.certificate)]
            write_public(directory / REVOKED, b"".join([data, *others]))

    def _write_book(self, issued: list[Issued]) -> None:
        self.issued = issued
        write_public(self.directory / ISSUED, msgspec.json.Encoder().encode_lines(issued))


def make_request(name: str, out: Path) -> None:
    """Makes a key for this machine's node and a request to sign it. The key never leaves the
    machine.
    """
    x509 = crypto()
    _check_name(name)
    if (out / KEY).exists():
        raise KeysError(f"{out} has a key already")
    key = _new_key()
    _directory(out)
    write_private(out / KEY, _pem_key(key))
    write_public(
        out / "node.csr",
        _pem(x509.CertificateSigningRequestBuilder().subject_name(_named(name)).sign(key, None)),
    )


def _requested(request: bytes) -> Any:
    """The public key of a signing request. The signature proves that its sender has the private
    key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        asked = crypto().load_pem_x509_csr(request)
    except ValueError as error:
        raise KeysError(f"not a signing request: {error}") from None
    public = asked.public_key()
    if not asked.is_signature_valid or not isinstance(public, Ed25519PublicKey):
        raise KeysError(
            "the request must be for an Ed25519 key and signed by it; "
            "make one with: gossamer keys request"
        )
    return public


def _line(identity: Identity) -> Issued:
    return Issued(
        identity.name,
        hex_peer(identity.peer),
        f"{identity.serial:x}",
        identity.not_before,
        identity.not_after,
        identity.publish,
        identity.subscribe,
        identity.generation,
        identity.key.hex(),
    )


def _days(days: float) -> float:
    if not 0 < days <= DAYS_MAX:
        raise KeysError(f"{days:g} days; the number must be above 0 and at most {DAYS_MAX}")
    return days


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise KeysError(
            f"{name!r} is not a name: letters, digits, dot, dash and underscore, at most 63"
        )


def _check_patterns(kind: str, patterns: Sequence[str] | None) -> None:
    for pattern in patterns or ():
        if "," in pattern:
            several = " ".join(f"--{kind} '{one.strip()}'" for one in pattern.split(","))
            raise KeysError(
                f"{pattern!r} has a comma, so it looks like several patterns in one; "
                f"give each one by itself: {several}"
            )
        if not pattern:
            raise KeysError(f"an empty pattern allows nothing; leave --{kind} out, or give topics")


def _directory(path: Path) -> None:
    """Makes a folder if there is none.

    A folder that is there keeps its mode, because every file that is written into it is private.
    """
    if not path.is_dir():
        private.folder(path, parents=True)


__all__ = ["Authority", "Issued", "create", "make_request", "peer_of"]
