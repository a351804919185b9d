"""Pods and nodes as `kubectl get -o json` lists them."""
