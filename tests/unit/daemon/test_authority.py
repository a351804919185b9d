"""An authority of one's own: what it signs, and what it refuses."""

import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rota.core.errors import InputError, OutputError
from rota.core.membership import Membership
from rota.daemon.authority import MAX_CSR, Authority
from rota.live.agent.identity import AgentIdentity, check_pin, pin_of


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority.create(tmp_path_factory.mktemp("tls") / "tls")
    made.issue_server(["head.example.org", "10.1.2.3"])
    return made


def test_its_keys_are_for_their_owner_only(authority):
    modes = {path.name: path.stat().st_mode & 0o777 for path in authority.folder.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca.key": 0o600, "server.pem": 0o644, "server.key": 0o600}


def test_it_is_made_once(authority):
    with pytest.raises(OutputError, match="there is an authority already"):
        Authority.create(authority.folder)
    assert Authority(authority.folder).fingerprint == authority.fingerprint


def test_where_there_is_none_the_remedy_is_named(tmp_path):
    assert not Authority.is_in(tmp_path)
    with pytest.raises(InputError, match="rota tls init"):
        Authority(tmp_path)


def test_the_daemon_s_certificate_is_for_its_names_and_this_machine(authority):
    assert authority.server_names() == [
        "head.example.org", "10.1.2.3", "localhost", "127.0.0.1", "::1",
    ]  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server)  # they belong together
    with pytest.raises(InputError, match="--name 'é'"):
        authority.issue_server(["é"])


def test_a_new_one_has_the_same_names_and_another_key(tmp_path):
    made = Authority.create(tmp_path)
    made.issue_server(["head"])
    first = made.server_certificate()
    assert made.issue_server(days=7) == ["head", "localhost", "127.0.0.1", "::1"]
    second = made.server_certificate()
    assert first.public_key() != second.public_key()
    assert second.not_valid_after_utc < first.not_valid_after_utc
    second.verify_directly_issued_by(x509.load_pem_x509_certificate(made.pem.encode()))


def test_a_machine_gets_a_certificate_for_its_own_name_and_key(authority, tmp_path):
    identity = AgentIdentity(tmp_path)
    key, csr = identity.new_request("n1")
    given = authority.certify(csr, "n2")  # what it is called is not for the machine to say
    found = x509.load_pem_x509_certificate(given.pem.encode())
    assert found.subject.rfc4514_string() == "CN=n2"
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert given.digest == found.fingerprint(hashes.SHA256()).hex()
    assert not identity.is_known
    identity.keep(Membership("n2", certificate=given.pem, authority=authority.pem), key)
    assert identity.is_known
    assert not identity.is_due
    assert identity.certificate.stat().st_mode & 0o777 == 0o600
    assert identity.trusting().verify_mode == ssl.CERT_REQUIRED


def test_a_certificate_is_due_after_two_thirds_of_its_life(authority, tmp_path):
    identity = AgentIdentity(tmp_path)
    key, csr = identity.new_request("n1")
    old = authority.certify(csr, "n1", days=1 / 1440)  # a minute, and five before now
    identity.keep(Membership("n1", certificate=old.pem, authority=authority.pem), key)
    assert identity.is_due
    identity.certificate.write_text("spoilt")
    with pytest.raises(InputError, match="join again"):
        _ = identity.is_due


def other_request():
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n1")])
    csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return csr.public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("csr", "why"),
    [
        ("", "not a certificate request"),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", "not a"),
        ("x" * (MAX_CSR + 1), "characters"),
        (other_request(), "not one of `rota agent`"),
    ],
)
def test_other_requests_are_refused(authority, csr, why):
    with pytest.raises(InputError, match=why):
        authority.certify(csr, "n1")


def test_a_code_recognises_the_authority(authority, tmp_path):
    check_pin(authority.pem, pin_of(authority.fingerprint))
    other = Authority.create(tmp_path)
    for pem in (other.pem, "rubbish"):
        with pytest.raises(InputError, match=r"nothing was sent|no certificate"):
            check_pin(pem, pin_of(authority.fingerprint))
