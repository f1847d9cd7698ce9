"""Any model behind one interface; talks to providers only, not to clients."""
