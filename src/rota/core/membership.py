"""What a machine gets when it joins a cluster."""

import msgspec


class Membership(msgspec.Struct, frozen=True, omit_defaults=True):
    """The credential of a node: a certificate (PEM) and who signed it, or a token."""

    node: str
    token: str = ""
    certificate: str = ""
    authority: str = ""
