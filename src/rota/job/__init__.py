"""What a job can use inside: notice a stop, save its state, tell how it gets on.

Everything works outside Rota too, so that a script can be tried at a desk. The package needs
nothing but the standard library, and importing it imports nothing else of Rota.

```python
from rota import job

state = job.load() or b"0"
for step in range(int(state), 1000):
    train(step)
    job.report(step=step)
    if job.should_stop():
        job.save(str(step + 1).encode(), step=step + 1)
        job.exit_for_restart()
```
"""

from rota.job.checkpoints import Saved, latest, load, load_torch, save, save_torch
from rota.job.environment import Info, checkpoint_dir, info
from rota.job.reports import report
from rota.job.stops import (
    RESTART_CODE,
    exit_for_restart,
    ignore_stop,
    install,
    seconds_left,
    should_stop,
    stop_signal,
)

__all__ = [
    "RESTART_CODE",
    "Info",
    "Saved",
    "checkpoint_dir",
    "exit_for_restart",
    "ignore_stop",
    "info",
    "install",
    "latest",
    "load",
    "load_torch",
    "report",
    "save",
    "save_torch",
    "seconds_left",
    "should_stop",
    "stop_signal",
]
