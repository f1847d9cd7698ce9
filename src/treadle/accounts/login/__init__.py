"""The ways to log in with ChatGPT: in a browser on this machine, or by a code on any device."""
