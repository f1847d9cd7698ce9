"""What is said on the wire: one struct per message part, one line per method."""
