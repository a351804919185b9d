"""Labs on sharing a cluster: scripted scenarios, their stories and pictures."""
