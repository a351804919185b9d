"""The tree of tenants."""

import pytest

from rota.core.errors import ClusterSpecError
from rota.core.events import INF
from rota.core.tenants import Tenant, TenantTree

FAMILY = [Tenant("team", "lab", limit=4), Tenant("root", quota=8), Tenant("lab", "root")]


def test_the_path_leads_to_the_root():
    tree = TenantTree(FAMILY)
    assert [tenant.name for tenant in tree.path("team")] == ["team", "lab", "root"]
    assert [tenant.name for tenant in tree.path("root")] == ["root"]
    assert tree.get("team").limit == 4
    assert (len(tree), [tenant.name for tenant in tree]) == (3, ["team", "root", "lab"])


def test_an_undeclared_tenant_is_unrestricted():
    tree = TenantTree(FAMILY)
    assert tree.get("guest") == Tenant("guest", "", 0.0, INF, 1.0)
    assert list(tree.path("guest")) == [Tenant("guest")]
    assert len(tree) == 3


@pytest.mark.parametrize(
    ("tenants", "message"),
    [
        ([Tenant("a"), Tenant("a", quota=2)], "^tenant 'a' is declared twice: "),
        ([Tenant("a", "b")], "^tenant 'a' has the unknown parent 'b': declare it"),
        ([Tenant("a", "b"), Tenant("b", "c")], "^tenant 'b' has the unknown parent 'c': "),
        ([Tenant("a", "a")], "^tenant 'a' is its own ancestor: "),
        ([Tenant("a", "b"), Tenant("b", "a")], "is its own ancestor: break the cycle"),
        (
            [Tenant("x", "a"), Tenant("a", "b"), Tenant("b", "c"), Tenant("c", "a")],
            "^tenant '[abc]' is its own ancestor: ",
        ),
    ],
)
def test_a_tree_that_is_none_is_refused(tenants, message):
    with pytest.raises(ClusterSpecError, match=message):
        TenantTree(tenants)
