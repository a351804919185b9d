"""Admissions: who may enter the queue. One file each, combined with any policy."""
