"""Controllers without Kubernetes' own: objects that can be suspended become pods.

One thread looks at all objects and their pods again and again, and does what the controllers of
Jobs, JobSets, PyTorchJobs and RayJobs, the scheduler and the garbage collector do: pods while an
object is not suspended, bound by their affinity unless they name another scheduler; none while it
is; and its status.
"""

import contextlib
import threading
from collections import Counter

from kubelets import now
from rota.core.kubernetes import part, parts, pod_amounts, text
from rota.live.drivers.kubernetes.api import KubeApi, KubeError
from rota.live.drivers.kubernetes.queued import KINDS, with_gpus

MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def define(api: KubeApi, *names: str) -> None:
    """Custom resources of these kinds, with a status of their own."""
    for name in names:
        kind = KINDS[name]
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": kind.version, "served": True, "storage": True,
                   "subresources": {"status": {}},
                   "schema": {"openAPIV3Schema": schema}}  # fmt: skip
        called = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind}
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{kind.plural}.{kind.group}",
                "annotations": {"api-approved.kubernetes.io": "unapproved, tests only"},
            },
            "spec": {"group": kind.group, "scope": "Namespaced", "names": called,
                     "versions": [version]},
        })  # fmt: skip


class Controllers:
    """All of them, in a thread of the test's process."""

    def __init__(self, api: KubeApi, *kinds: str, gpus: int = 4):
        self.api = api
        self.kinds = [KINDS[name] for name in kinds]
        self.gpus = gpus
        self.made: Counter = Counter()  # pods, by object
        self.ended: Counter = Counter()  # how often an object was told to have ended
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closing.set()
        self._thread.join()
        self.api.close()

    def _work(self):
        while not self._closing.wait(0.2):
            with contextlib.suppress(KubeError):  # the server is away, or somebody was faster
                self._look()

    def _look(self):
        pods = self.api.pages("/api/v1/pods")[0]
        owned: dict[str, list] = {}
        for pod in pods:
            for owner in parts(part(pod, "metadata"), "ownerReferences"):
                owned.setdefault(owner["uid"], []).append(pod)
        for kind in self.kinds:
            for item in self.api.pages(kind.path)[0]:
                if kind.handles(item):
                    self._control(kind, item, owned.pop(item["metadata"]["uid"], []))
        for orphans in owned.values():
            self._delete(orphans)
        self._schedule(pods)

    def _control(self, kind, item, pods):
        # a pod that its kubelet refused has a reason: another one is made, as with a backoffLimit
        pods = [pod for pod in pods if not text(part(pod, "status"), "reason")]
        phases = [text(part(pod, "status"), "phase") for pod in pods]
        name = item["metadata"]["name"]
        if kind.end(item) is not None:
            return
        if "Failed" in phases and not self._goes(pods):
            self._tell(kind, item, "Failed", "FAILED")
            self.ended[name] += 1
        elif kind.suspended(item):
            self._delete(pods)
            if not pods and not kind.stopped(item):
                self._tell(kind, item, "Suspended", "", "Suspended")
        elif "Succeeded" in phases and set(phases) == {"Succeeded"}:
            self._tell(kind, item, (kind.good or ("",))[0], "SUCCEEDED", "Complete")
            self.ended[name] += 1
        elif not pods:
            self._tell(kind, item, "", "", "Running")
            templates = [t for t, count in with_gpus(kind, item) for _ in range(count)]
            for number, template in enumerate(templates):
                self._make(kind, item, number, template)

    def _goes(self, pods):
        return any(part(pod, "metadata").get("deletionTimestamp") for pod in pods)

    def _make(self, kind, item, number, template):
        about = item["metadata"]
        owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": about["name"],
                 "uid": about["uid"], "controller": True}  # fmt: skip
        self.made[about["name"]] += 1
        metadata = {"generateName": f"{about['name']}-{number}-", "ownerReferences": [owner]}
        for key in ("labels", "annotations"):
            metadata[key] = part(template, "metadata").get(key, {})
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self.api.create(f"/api/v1/namespaces/{about['namespace']}/pods", body)

    def _delete(self, pods):
        for pod in pods:
            about = pod["metadata"]
            if about.get("deletionTimestamp") is None:
                path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
                grace = {} if text(pod["spec"], "nodeName") else {"gracePeriodSeconds": 0}
                self.api.delete(path, {"preconditions": {"uid": about["uid"]}, **grace})

    def _tell(self, kind, item, condition, word, whole=""):
        """The status of an object: a condition that is true, all others are not."""
        kept = [one for one in parts(part(item, "status"), "conditions")
                if one["type"].startswith("rota.dev/")]  # fmt: skip
        told = [{"type": condition, "status": "True", "reason": "Test", "message": "as it is",
                 "lastTransitionTime": now()}] if condition else []  # fmt: skip
        status = {"conditions": [*kept, *told]}
        if kind.kind == "RayJob":
            status = {"jobStatus": word, "jobDeploymentStatus": whole or "Failed"}
        self.api.patch(f"{kind.path_of(item)}/status", {
            "metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}, "status": status,
        })  # fmt: skip

    def _schedule(self, pods):
        """As the default scheduler: any node of the affinity that has room."""
        held: Counter = Counter()
        for pod in pods:
            if text(part(pod, "status"), "phase") in ("Pending", "Running"):
                held[text(pod["spec"], "nodeName")] += pod_amounts(pod["spec"], "whole")[2]
        for pod in pods:
            spec, about = pod["spec"], pod["metadata"]
            if text(spec, "nodeName") or text(spec, "schedulerName") != "default-scheduler":
                continue
            terms = part(spec, "affinity", "nodeAffinity", MUST).get("nodeSelectorTerms", [])
            nodes = [value for term in terms for value in term["matchFields"][0]["values"]]
            size = pod_amounts(spec, "whole")[2]
            node = next((name for name in nodes if held[name] + size <= self.gpus), "")
            if node:
                held[node] += size
                path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}/binding"
                self.api.create(path, {
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": about["name"]},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                })  # fmt: skip
