"""The app-server: sessions, handlers, and the process around them."""
