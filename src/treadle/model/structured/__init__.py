"""Structured output: JSON Schemas for providers, and validation of what models answer."""
