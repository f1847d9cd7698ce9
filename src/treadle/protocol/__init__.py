"""The wire format: one struct per message part, one table entry per method."""
