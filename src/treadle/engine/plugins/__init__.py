"""Plugins as files: marketplaces, manifests, the cache of installed ones, and what they provide."""
