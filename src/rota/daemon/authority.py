"""A certificate authority of one's own: certificates for the daemon and for the machines that join.

All of it is in one folder: `ca.pem` (for everybody), `ca.key`, and the daemon's `server.pem` and
`server.key`. Whoever has `ca.key` can speak for the daemon and for every machine.
"""

import ipaddress
import socket
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rota.core.errors import InputError, OutputError
from rota.live.agent.identity import pem_of
from rota.live.files import replace_file

CA_DAYS, SERVER_DAYS, NODE_DAYS = 3650, 365, 90
EARLIER = timedelta(minutes=5)  # clocks differ
MAX_CSR = 10_000  # characters


class Authority:
    """The authority in a folder."""

    def __init__(self, folder: Path) -> None:
        """Read it.

        Raises:
            InputError: There is none, or it cannot be read.
        """
        self.folder = folder
        try:
            self.pem = (folder / "ca.pem").read_text()
            self._certificate = x509.load_pem_x509_certificate(self.pem.encode())
            key = load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise InputError(
                f"{folder}: there is no authority that can be used ({error}): make one with "
                "`rota tls init`"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError(f"{folder / 'ca.key'}: not a key of `rota tls init`")
        self._key = key

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Is there one in this folder?"""
        return (folder / "ca.key").exists()

    @classmethod
    def create(cls, folder: Path) -> "Authority":
        """Make a new one, in a folder that has none."""
        if cls.is_in(folder):
            raise OutputError(
                f"{folder}: there is an authority already: `rota tls renew` makes new certificates "
                "from it; to begin anew remove the folder, and let all machines join again"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, f"Rota at {socket.gethostname()[:40]}")]
        )
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        made = (
            _builder(name, name, key.public_key(), CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(folder / "ca.pem", made.public_bytes(Encoding.PEM))
            replace_file(folder / "ca.key", pem_of(key), private=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror}") from error
        return cls(folder)

    @property
    def fingerprint(self) -> bytes:
        """By which a certificate of the authority is known: SHA-256."""
        return self._certificate.fingerprint(hashes.SHA256())

    # --- the daemon -------------------------------------------------------------------------------

    @property
    def server(self) -> tuple[Path, Path]:
        """The files of the daemon's certificate and its key."""
        return self.folder / "server.pem", self.folder / "server.key"

    def issue_server(self, names: Iterable[str] = (), days: int = SERVER_DAYS) -> list[str]:
        """A new key and certificate for the daemon; the names and addresses that it is good for.

        Without names those of the certificate before it, or those of this machine.
        """
        known = list(dict.fromkeys(names)) or self.server_names() or [socket.gethostname()]
        known = list(dict.fromkeys([*known, "localhost", "127.0.0.1", "::1"]))
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._issue(
            known[0], map(_general, known), key.public_key(), ExtendedKeyUsageOID.SERVER_AUTH, days
        )
        certificate, key_file = self.server
        try:  # the key is found with another certificate for a moment: that is tried again
            replace_file(key_file, pem_of(key), private=True)
            replace_file(certificate, made.public_bytes(Encoding.PEM) + self.pem.encode())
        except OSError as error:
            raise OutputError(f"{self.folder}: cannot be written: {error.strerror}") from error
        return known

    def server_names(self) -> list[str]:
        """What the daemon's certificate is good for."""
        found = self.server_certificate()
        if found is None:
            return []
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(name.value) for name in names]

    def server_certificate(self) -> x509.Certificate | None:
        """The daemon's certificate, if there is one."""
        try:
            return x509.load_pem_x509_certificate(self.server[0].read_bytes())
        except (OSError, ValueError):
            return None

    # --- machines ---------------------------------------------------------------------------------

    def certify(self, csr: str, node: str, days: float = NODE_DAYS) -> "NodeCertificate":
        """A certificate for the key of a machine; whatever else it asks for is ignored."""
        if len(csr) > MAX_CSR:
            raise InputError(f"the certificate request has {len(csr):,} characters: {MAX_CSR:,}")
        try:
            request = x509.load_pem_x509_csr(csr.encode())
            key = request.public_key()
            sound = request.is_signature_valid
        except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
            raise InputError(f"not a certificate request: {error}") from error
        if not sound or not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError("the certificate request is not one of `rota agent`: send one of that")
        made = self._issue(node, [x509.DNSName(node)], key, ExtendedKeyUsageOID.CLIENT_AUTH, days)
        return NodeCertificate(
            made.public_bytes(Encoding.PEM).decode(),
            made.fingerprint(hashes.SHA256()).hex(),
            made.not_valid_after_utc.timestamp(),
        )

    def _issue(
        self,
        name: str,
        names: Iterable[x509.GeneralName],
        key: ec.EllipticCurvePublicKey,
        purpose: x509.ObjectIdentifier,
        days: float,
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        return (
            _builder(subject, self._certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )


class NodeCertificate(msgspec.Struct, frozen=True):
    """What a machine shows: the certificate, its SHA-256, and until when it is good."""

    pem: str
    digest: str
    until_unix: float


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise InputError(f"--name {name!r}: give the name or address of a machine") from error
