"""Replay a recorded history with changes: what would have happened (`replay.replay`).

`changes` says what is different, `cluster` which machines there were, `recorded` repeats what
happened, `model` finds the policy that comes closest to it, and `tables` compares.
"""
