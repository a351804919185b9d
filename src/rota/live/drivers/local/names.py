"""Names of folders for names that users or servers choose."""

from hashlib import sha256
from urllib.parse import quote

LONGEST = 100


def folder_name(text: str) -> str:
    """A name for a folder that stays where it is put, and is another one for every text."""
    name = quote(text, safe=" ")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if not name or len(name) > LONGEST:
        name = f"{name[:60]}%{sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"
    return name
