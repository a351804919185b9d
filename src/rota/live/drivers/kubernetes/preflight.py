"""Can this cluster be used? What it lacks, or does not allow, is said at start-up by name."""

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, parts, text
from rota.live.drivers.kubernetes.api import NOT_FOUND, KubeApi, KubeError, KubeObject
from rota.live.drivers.kubernetes.options import KubernetesOptions
from rota.live.drivers.kubernetes.queued import KINDS, QueuedKind

CLUSTER_WIDE = (("", "nodes", ("list", "watch")), ("", "pods", ("list", "watch")))
NAMESPACED = (
    ("", "pods", ("create", "get", "delete", "patch", "deletecollection")),
    ("", "pods/log", ("get",)),
    ("", "services", ("create",)),
)
SCHEDULING = (
    ("", "pods", ("get", "patch", "delete")),
    ("", "pods/binding", ("create",)),
    ("", "pods/status", ("patch",)),
    ("", "events", ("create", "patch")),
)
"""In all namespaces, for pods of others."""
QUEUEING = (
    ("", "pods", ("delete",)),
    ("", "events", ("create", "patch")),
)
"""In all namespaces, for objects that wait in the queue, beyond what is done to these."""
GVK = "x-kubernetes-group-version-kind"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def check(api: KubeApi, options: KubernetesOptions, namespace: str) -> list[str]:
    """Raise if this cluster cannot be used; otherwise remarks for the log."""
    kinds = queue_kinds(options)
    everywhere = CLUSTER_WIDE + (SCHEDULING if options.scheduler_name else ())
    if kinds:
        everywhere += QUEUEING + tuple(dict.fromkeys(right for k in kinds for right in rights(k)))
    rights_everywhere = [(group, what, verb) for group, what, verbs in everywhere for verb in verbs]
    missing = [
        f"{verb} {resource}"
        for group, resource, verb in dict.fromkeys(rights_everywhere)  # two uses may need the same
        if not allowed(api, group, resource, verb)
    ]
    missing += [
        f"{verb} {resource} in {namespace}"
        for group, resource, verbs in NAMESPACED
        for verb in verbs
        if not allowed(api, group, resource, verb, namespace)
    ]
    if missing:
        raise ClusterError(
            f"Kubernetes does not allow Rota to {', '.join(missing)}: grant it, as "
            "examples/kubernetes/rbac.yaml does"
            + (", with scheduler.yaml for pods of others" if options.scheduler_name else "")
            + (", with queue.yaml for objects that wait in the queue" if kinds else "")
        )
    lacking = [lack for kind in kinds if (lack := lacks(api, kind))]
    if lacking:
        raise ClusterError(f"`kubernetes.queue_kinds` cannot be had here: {'; '.join(lacking)}")
    remarks = []
    if not options.image:
        remarks.append("no `kubernetes.image` is set: no job can be started")
    version = text(api.get("/version"), "gitVersion")
    remarks.append(f"API server {version or 'of an unknown version'}")
    return remarks


def queue_kinds(options: KubernetesOptions) -> list[QueuedKind]:
    """The kinds that wait in the queue, by their names."""
    unknown = [name for name in options.queue_kinds if name not in KINDS]
    if unknown:
        raise ClusterError(
            f"`kubernetes.queue_kinds` has {', '.join(map(repr, unknown))}: choose among "
            f"{', '.join(KINDS)}"
        )
    return [KINDS[name] for name in options.queue_kinds]


def rights(kind: QueuedKind) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """What is done to objects of a kind."""
    own = (kind.group, kind.plural, ("list", "watch", "update"))
    return (own, (kind.group, f"{kind.plural}/status", ("patch",))) if kind.conditions else (own,)


def lacks(api: KubeApi, kind: QueuedKind) -> str:
    """What this server lacks for a kind; empty: nothing that can be seen."""
    full = f"{kind.kind} ({kind.api_version})"
    try:
        served = parts(api.get(f"/apis/{kind.api_version}"), "resources")
    except KubeError as error:
        if error.status != NOT_FOUND:
            raise
        served = []
    if not any(one.get("name") == kind.plural for one in served):
        return f"{full} is not installed"
    if kind.switch[-1] == "suspend" and not _keeps(api, kind):
        extra = "; use Job/parallelism" if kind.kind == "Job" else ""
        return f"this server drops {'.'.join(kind.switch)} of {full}{extra}"
    return ""


def _keeps(api: KubeApi, kind: QueuedKind) -> bool:
    """Does the server's own description of the kind have the switch? If it says nothing, yes."""
    known = part(api.get("/openapi/v2"), "definitions")
    asked = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    item: KubeObject = next(
        (each for each in known.values() if asked in each.get(GVK, ())), {},
    )  # fmt: skip
    for key in kind.switch:
        reference = text(item, "$ref").rpartition("/")[2]
        fields = part(known, reference) if reference else item
        if not part(fields, "properties"):
            return True
        if key not in fields["properties"]:
            return False
        item = part(fields, "properties", key)
    return True


def allowed(api: KubeApi, group: str, resource: str, verb: str, namespace: str = "") -> bool:
    """May we do this?"""
    name, _, sub = resource.partition("/")
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "group": group, "resource": name, "subresource": sub, "verb": verb,
                "namespace": namespace,
            }
        },
    }  # fmt: skip
    return bool(part(api.create(REVIEWS, asked), "status").get("allowed"))
