"""Tests of the tools that run tests."""
