"""Who an agent is for its server: it joins once with a code, and then has a credential of its own.

The credential is in a folder of the agent: a key and a certificate for it (`node.key`, `node.pem`)
where the server has an authority, else a token (`node.token`).
"""

import base64
import ssl
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from rota.core.errors import InputError
from rota.core.membership import Membership
from rota.live.files import replace_file

RENEW_AT = 2 / 3  # of the life of a certificate


class JoinCode(msgspec.Struct, frozen=True):
    """A code with which one machine joins once; `pin`: how to recognise the server's authority."""

    secret: str
    pin: str = ""

    @classmethod
    def read(cls, text: str) -> "JoinCode":
        """From the words of an administrator."""
        secret, _, pin = text.strip().partition(".")
        if not secret.isascii() or not secret.replace("-", "").replace("_", "").isalnum():
            raise InputError(f"--join {text[:20]!r}...: give the code of `rota token join NODE`")
        return cls(secret, pin)

    def __str__(self) -> str:
        return f"{self.secret}.{self.pin}" if self.pin else self.secret


def pin_of(fingerprint: bytes) -> str:
    """A SHA-256 in few letters."""
    return base64.urlsafe_b64encode(fingerprint).decode().rstrip("=")


def check_pin(pem: str, pin: str) -> None:
    """Raise unless this is the authority that a code speaks of."""
    try:
        der = ssl.PEM_cert_to_DER_cert(pem)
    except ValueError as error:
        raise InputError(f"the server shows no certificate of an authority: {error}") from error
    if pin_of(sha256(der).digest()) != pin:
        raise InputError(
            "the server is not the one that the code is for (another certificate): check --server; "
            "nothing was sent"
        )


class AgentIdentity:
    """The credential of an agent, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "node.pem"
        self.token = folder / "node.token"
        self.authority = folder / "ca.pem"

    @property
    def is_known(self) -> bool:
        """Has it joined?"""
        return self.certificate.exists() or self.token.exists()

    def new_request(self, node: str) -> tuple[bytes, str]:
        """A new key, not yet in use, and the request for its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node[:64])])
        csr = x509.CertificateSigningRequestBuilder().subject_name(subject)
        return pem_of(key), csr.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def keep(self, membership: Membership, key: bytes) -> None:
        """Use what the server gave from now on."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if membership.certificate:
            replace_file(self.authority, membership.authority.encode())
            # key and certificate in one file: they are replaced together or not at all
            both = key + membership.certificate.encode()
            replace_file(self.certificate, both, private=True)
        else:
            replace_file(self.token, membership.token.encode() + b"\n", private=True)

    @property
    def is_due(self) -> bool:
        """Is it time for another certificate?"""
        if not self.certificate.exists():
            return False
        try:
            found = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.certificate}: cannot be read ({error}): remove {self.folder} and join again"
            ) from error
        life = found.not_valid_after_utc - found.not_valid_before_utc
        return datetime.now(UTC) >= found.not_valid_before_utc + RENEW_AT * life

    def trusting(self) -> ssl.SSLContext:
        """How to connect: trust the authority, show the certificate."""
        try:
            made = ssl.create_default_context(cafile=self.authority)
            made.load_cert_chain(self.certificate)
        except OSError as error:  # an SSLError is one too
            raise InputError(
                f"{self.folder}: the certificate cannot be used ({error}): remove the folder and "
                "join again"
            ) from error
        return made


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as it is kept in a file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
