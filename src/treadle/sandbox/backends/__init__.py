"""The backends that confine commands: bubblewrap, Landlock with seccomp, and Seatbelt."""
