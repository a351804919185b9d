"""Elastic policies of many papers, compared on the same jobs."""
