"""Jobs of several users on one machine, kept apart or not."""

import os
import shutil
from pathlib import Path

from needs import ROOT, SYSTEM, need
from rota.live.agent.sandbox import Sandbox, obstacle

PYTHON = "/usr/bin/python3"  # that of the system: other users may execute it
UIDS = {"ann": "1900000101", "bob": "1900000102"}
NOBODY = 65534

# What a job of somebody else tries: FOUND in its output is a secret that it got.
SPY = """
for path in {paths}; do cat "$path" 2>/dev/null; ls -R "$path" 2>/dev/null; done
cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep SECRET
kill -9 {pid} 2>/dev/null && echo SECRET-killed
echo done
"""


def need_sandboxes():
    """Skip where there can be none for other accounts."""
    need(os.geteuid() == 0, "root, to run jobs as other users", ROOT)
    need(shutil.which("bwrap"), "bubblewrap", SYSTEM)
    need(not obstacle(), f"namespaces ({obstacle()})", ROOT)


def account_of(order):
    """Whom a run of a test runs as."""
    return UIDS.get(order.user, ""), not order.user


def sandbox(root, **options):
    """The sandbox of an agent with this folder."""
    return Sandbox([Path(root)], **{"embedded": True, **options})
