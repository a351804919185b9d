"""Talk to a daemon from Python.

```python
from rota.sdk import Client

with Client() as rota:
    job = rota.submit({"run": "python train.py", "resources": {"gpus": 2}})
    print(rota.wait(job.id).state)
```

The clients are loaded when they are first used: where a daemon is (`rota.sdk.place`) can be asked
without the packages that it takes to speak to one.
"""

from typing import TYPE_CHECKING, Any

from rota.sdk.place import Place, find_place
from rota.wire import Event

if TYPE_CHECKING:
    from rota.sdk.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Event", "Place", "find_place"]


def __getattr__(name: str) -> Any:
    """The clients."""
    if name not in __all__:
        raise AttributeError(f"module 'rota.sdk' has no attribute {name!r}")
    from rota.sdk import client

    return getattr(client, name)


def __dir__() -> list[str]:
    """What is there to be used, loaded or not."""
    return sorted(__all__)
