"""Operations on secrets: no answer has a value."""

from rota.api.routing import ApiCall, serves
from rota.wire import LIST_SECRETS, REMOVE_SECRET, SET_SECRET, NewSecret, SecretInfo


@serves(SET_SECRET)
def set_secret(call: ApiCall, body: NewSecret) -> None:
    """Keep a secret for one's own jobs; no request ever shows it again."""
    call.service.set_secret(body.name, body.value, call.actor)


@serves(LIST_SECRETS)
def list_secrets(call: ApiCall) -> list[SecretInfo]:
    """List the names of one's own secrets."""
    return call.service.secrets(call.actor)


@serves(REMOVE_SECRET)
def remove_secret(call: ApiCall, secret: str) -> None:
    """Forget a secret."""
    call.service.remove_secret(secret, call.actor)
