"""How fast a job runs on an allocation, and what changing the allocation costs."""
