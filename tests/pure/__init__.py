"""Tests that need nothing but Python."""
