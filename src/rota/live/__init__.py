"""What all real clusters have in common: runs, a mailbox, a clock, and the port around a driver."""
