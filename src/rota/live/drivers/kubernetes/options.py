"""Settings of the Kubernetes backend."""

import msgspec


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Rota uses a Kubernetes cluster.

    Rota creates its pods in one namespace, with `image` unless a job names its own. Nodes are those
    that match `node_selector` and have `gpu_resource`.
    """

    kubeconfig: str = ""  # empty: KUBECONFIG, ~/.kube/config, or the account of Rota's own pod
    context: str = ""  # of the kubeconfig; empty: its current one
    namespace: str = ""  # for pods of jobs; empty: that of the context, else `default`
    image: str = ""  # of jobs that name none
    service_account: str = ""  # of the pods of jobs; empty: none, and no token in them
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}  # labels of the nodes that Rota may use; empty: all
    tolerations: tuple[str, ...] = ()  # keys of taints that pods of jobs tolerate
    checkpoint_claim: str = ""  # a PersistentVolumeClaim for ROTA_CHECKPOINT_DIR, shared by nodes
    lost_s: float = 120.0  # a node that is not ready for so long is lost
    keep_s: float = 3600.0  # pods that ended stay so long, for `kubectl describe`
    timeout_s: float = 20.0  # of a single request
    scheduler_name: str = ""  # pods of others with this `schedulerName` are jobs; empty: none are
    queue_kinds: tuple[str, ...] = ()  # objects with the label rota.dev/queue are jobs
    successor_s: float = 120.0  # so long a job waits for another pod in place of one that is gone
    note_after_s: float = 10.0  # an object that waits so long is told why, on itself
