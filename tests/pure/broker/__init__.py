"""Tests of the embedded broker that need no broker."""
