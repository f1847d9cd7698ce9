"""Structured output: JSON Schemas for providers, and validation of model output."""
