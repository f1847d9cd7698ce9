"""JSON-RPC: frames, envelopes and errors. Takes values, returns values; no i/o, no clock."""
