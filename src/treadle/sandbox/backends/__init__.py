"""The means to confine commands: bubblewrap, Landlock with seccomp, and Seatbelt."""
