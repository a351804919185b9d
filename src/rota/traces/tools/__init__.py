"""What is done with whole traces: convert, change, merge, annotate, report."""
