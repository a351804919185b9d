"""Can this cluster be used? What it lacks, or does not allow, is said at start-up by name."""

from rota.core.errors import ClusterError
from rota.core.kubernetes import part, text
from rota.live.drivers.kubernetes.api import KubeApi
from rota.live.drivers.kubernetes.options import KubernetesOptions

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
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def check(api: KubeApi, options: KubernetesOptions, namespace: str) -> list[str]:
    """Raise if this cluster cannot be used; otherwise remarks for the log."""
    everywhere = CLUSTER_WIDE + (SCHEDULING if options.scheduler_name else ())
    missing = [
        f"{verb} {resource}"
        for group, resource, verbs in everywhere
        for verb in verbs
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
        )
    remarks = []
    if not options.image:
        remarks.append("no `kubernetes.image` is set: no job can be started")
    version = text(api.get("/version"), "gitVersion")
    remarks.append(f"API server {version or 'of an unknown version'}")
    return remarks


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
