"""The only loop: events in, ask the scheduler, carry out the plan, write the log."""
