"""Published simulators' assumptions and quirks, so that their own numbers come out."""
