"""Gandiva: introspection (`policy`) on servers and the jobs that live there (`homes`)."""
