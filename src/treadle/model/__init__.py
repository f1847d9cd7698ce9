"""Any model behind one interface. Knows no wire of ours: it speaks to providers only."""
