"""Talk to a daemon from Python.

```python
from rota.sdk import Client

with Client() as rota:
    job = rota.submit({"run": "python train.py", "resources": {"gpus": 2}})
    print(rota.wait(job.id).state)
```
"""

from rota.sdk.aio import AsyncClient
from rota.sdk.client import Client
from rota.sdk.events import Event
from rota.sdk.place import Place, find_place

__all__ = ["AsyncClient", "Client", "Event", "Place", "find_place"]
