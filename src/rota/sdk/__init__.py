"""Talk to a daemon from Python.

```python
from rota.sdk import Client

with Client() as rota:
    job = rota.submit({"run": "python train.py", "resources": {"gpus": 2}})
    print(rota.wait(job.id).state)
```
"""

from rota.sdk.client import AsyncClient, Client
from rota.sdk.place import Place, find_place
from rota.wire import Event

__all__ = ["AsyncClient", "Client", "Event", "Place", "find_place"]
