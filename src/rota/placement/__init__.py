"""Where jobs go: pure bookkeeping of free devices, and choices among them."""
