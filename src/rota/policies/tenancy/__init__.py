"""Policies that serve a tree of queues: `capacity` and `hierarchical-fair`, also inside `hived`.

`policy` is the door: what such a policy says, and its presets. `tree` has the branches with their
accounts, `queues` who waits and runs in each, `decision` one decision over all of them, `victims`
who has to make room, `inner` the policy that orders the jobs of one queue.
"""
