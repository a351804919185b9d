"""One file per published policy. Policies know no engine, clock, randomness or I/O."""
