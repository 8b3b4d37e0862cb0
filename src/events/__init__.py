"""What happened and what may happen: event classes, state machines, codec and log."""
